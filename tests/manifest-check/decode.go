package main

import (
	"fmt"

	snapshot "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/networking"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	networkingvalidation "k8s.io/kubernetes/pkg/apis/networking/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	policyvalidation "k8s.io/kubernetes/pkg/apis/policy/validation"
	"k8s.io/kubernetes/pkg/apis/rbac"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	rbacvalidation "k8s.io/kubernetes/pkg/apis/rbac/validation"
	"k8s.io/kubernetes/pkg/apis/storage"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	storagevalidation "k8s.io/kubernetes/pkg/apis/storage/validation"
	"k8s.io/kubernetes/pkg/capabilities"
)

var (
	scheme  = legacyscheme.Scheme
	decoder = json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	// Cluster-scoped kinds that appear here.
	clusterWide = map[string]bool{
		"CSIDriver": true, "ClusterRole": true, "ClusterRoleBinding": true, "Namespace": true, "PersistentVolume": true,
		"StorageClass": true, "VolumeAttributesClass": true, "VolumeSnapshotClass": true,
	}
)

func init() {
	// The snapshot API, as in every cluster with CSI drivers.
	capabilities.Initialize(capabilities.Capabilities{AllowPrivileged: true})
	utilruntime.Must(snapshot.AddToScheme(scheme))
	utilruntime.Must(monitoring.AddToScheme(scheme))
}

// Decodes a document as an API server does: unknown and repeated fields are errors, defaults are filled in,
// and the result is in the internal version if the kind has one.
func decode(text string) (runtime.Object, *schema.GroupVersionKind, error) {
	object, kind, err := decoder.Decode([]byte(text), nil, nil)
	if err != nil {
		return nil, nil, err
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, nil, err
	}
	if accessor.GetNamespace() == "" && !clusterWide[kind.Kind] {
		accessor.SetNamespace("default")
	}
	if accessor.GetNamespace() != "" && clusterWide[kind.Kind] {
		return nil, nil, fmt.Errorf("a %s has no namespace", kind.Kind)
	}
	scheme.Default(object)
	internal := schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal}
	if scheme.Recognizes(internal.WithKind(kind.Kind)) {
		converted, err := scheme.UnsafeConvertToVersion(object, internal)
		if err != nil {
			return nil, nil, err
		}
		object = converted
	}
	return object, kind, nil
}

// Returns the errors that an API server would report.
func validate(object runtime.Object) field.ErrorList {
	switch o := object.(type) {
	case *apps.DaemonSet:
		return appsvalidation.ValidateDaemonSet(o, podutil.GetValidationOptionsFromPodTemplate(&o.Spec.Template, nil))
	case *apps.Deployment:
		return appsvalidation.ValidateDeployment(o, podutil.GetValidationOptionsFromPodTemplate(&o.Spec.Template, nil))
	case *core.Pod:
		return corevalidation.ValidatePodCreate(o, podutil.GetValidationOptionsFromPodSpecAndMeta(&o.Spec, nil, &o.ObjectMeta, nil))
	case *core.PersistentVolume:
		return corevalidation.ValidatePersistentVolume(o, corevalidation.ValidationOptionsForPersistentVolume(o, nil))
	case *core.PersistentVolumeClaim:
		return corevalidation.ValidatePersistentVolumeClaim(o, corevalidation.ValidationOptionsForPersistentVolumeClaim(o, nil))
	case *core.Secret:
		return corevalidation.ValidateSecret(o)
	case *core.ServiceAccount:
		return corevalidation.ValidateServiceAccount(o)
	case *core.Service:
		// The API server copies the single address into the list of addresses before validation.
		if o.Spec.ClusterIP != "" {
			o.Spec.ClusterIPs = []string{o.Spec.ClusterIP}
		}
		return corevalidation.ValidateServiceCreate(o)
	case *core.Namespace:
		return corevalidation.ValidateNamespace(o)
	case *networking.NetworkPolicy:
		return networkingvalidation.ValidateNetworkPolicy(o, networkingvalidation.NetworkPolicyValidationOptions{})
	case *policy.PodDisruptionBudget:
		return policyvalidation.ValidatePodDisruptionBudget(o, policyvalidation.PodDisruptionBudgetValidationOptions{})
	case *rbac.Role:
		return rbacvalidation.ValidateRole(o)
	case *rbac.RoleBinding:
		return rbacvalidation.ValidateRoleBinding(o)
	case *rbac.ClusterRole:
		return rbacvalidation.ValidateClusterRole(o, rbacvalidation.ClusterRoleValidationOptions{})
	case *rbac.ClusterRoleBinding:
		return rbacvalidation.ValidateClusterRoleBinding(o)
	case *storage.StorageClass:
		return storagevalidation.ValidateStorageClass(o)
	case *storage.CSIDriver:
		return storagevalidation.ValidateCSIDriver(o)
	case *storage.VolumeAttributesClass:
		return storagevalidation.ValidateVolumeAttributesClass(o)
	case *snapshot.VolumeSnapshot, *snapshot.VolumeSnapshotClass, *monitoring.ServiceMonitor:
		// The type of a custom resource has its schema; the rules check the rest.
		return nil
	}
	return field.ErrorList{field.InternalError(nil, fmt.Errorf("no validation for %T: add it to decode.go", object))}
}
