package main

import (
	"reflect"
	"slices"
	"strings"

	snapshot "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/storage"
)

const prefix = "csi.storage.k8s.io/"

var (
	// Roles for which a StorageClass names a Secret; the first two are always required.
	classSecrets = []string{"provisioner", "node-publish", "controller-expand", "controller-modify", "node-expand", "snapshotter"}
	// Parameters of a StorageClass besides those of the provisioner and the volume attributes.
	classParameters = []string{"pathPattern", "secretFinalizer"}
	// Volume attributes, in a PV, a StorageClass or a pod. Those with juicefs/ are recognised by that prefix.
	attributes = []string{"subPath", "capacity", "mountOptions"}
	// Keys of a Secret.
	secretKeys = []string{
		"name", "metaurl", "storage", "bucket", "access-key", "secret-key", "accesskey", "secretkey", "session-token", "format-options",
		"block-size", "compress", "trash-days", "capacity", "inodes", "shards", "envs", "configs", "encrypt_rsa_key",
	}
)

func (c *cluster) checkStorage() {
	each(c, func(id string, class *storage.StorageClass) { c.checkClass(id, class) })
	each(c, func(id string, volume *core.PersistentVolume) { c.checkVolume(id, volume) })
	each(c, func(id string, claim *core.PersistentVolumeClaim) { c.checkClaim(id, claim) })
	each(c, func(id string, class *storage.VolumeAttributesClass) { c.want(id, "CSIDriver", "", class.DriverName) })
	each(c, func(id string, class *snapshot.VolumeSnapshotClass) {
		c.want(id, "CSIDriver", "", class.Driver)
		for _, role := range []string{"snapshotter", "snapshotter-list"} {
			c.checkSecretOf(id, class.Parameters, role, true)
		}
	})
	each(c, func(id string, taken *snapshot.VolumeSnapshot) { c.checkSnapshot(id, taken) })
	for _, claim := range c.grown {
		c.checkGrowth(claim)
	}
	each(c, func(id string, pod *core.Pod) { c.checkVolumesOf(id, pod.Namespace, &pod.Spec) })
	c.eachTemplate(func(id, namespace string, template *core.PodTemplateSpec) {
		c.checkVolumesOf(id, namespace, &template.Spec)
	})
}

func (c *cluster) checkClass(id string, class *storage.StorageClass) {
	c.want(id, "CSIDriver", "", class.Provisioner)
	c.checkOptions(id, class.MountOptions)
	for i, role := range classSecrets {
		c.checkSecretOf(id, class.Parameters, role, i < 2)
	}
	for parameter, value := range class.Parameters {
		if !strings.HasPrefix(parameter, prefix) && !slices.Contains(classParameters, parameter) {
			c.checkAttribute(id, parameter, value)
		}
	}
}

// The two parameters that name a Secret.
func (c *cluster) checkSecretOf(id string, parameters map[string]string, role string, needed bool) {
	name, namespace := parameters[prefix+role+"-secret-name"], parameters[prefix+role+"-secret-namespace"]
	if name == "" && namespace == "" {
		if needed {
			c.find(id, "names no Secret for the %s", role)
		}
		return
	}
	if name == "" || namespace == "" {
		c.find(id, "the Secret for the %s needs a name and a namespace", role)
		return
	}
	// Values with placeholders for each claim cannot be looked up here.
	if !strings.Contains(name+namespace, "${") {
		c.checkSecret(id, namespace, name)
	}
}

func (c *cluster) checkSecret(id, namespace, name string) {
	secret, is := c.want(id, "Secret", namespace, name).(*core.Secret)
	if !is {
		return
	}
	place := key("Secret", namespace, name)
	for _, needed := range []string{"name", "metaurl"} {
		if len(secret.Data[needed]) == 0 {
			c.find(place, "has no %s", needed)
		}
	}
	for given := range secret.Data {
		if !slices.Contains(secretKeys, given) {
			c.find(place, "unknown key %s", given)
		}
	}
}

func (c *cluster) checkAttribute(id, attribute, value string) {
	if attribute == "mountOptions" {
		c.checkOptions(id, strings.Split(value, ","))
	}
	if !slices.Contains(attributes, attribute) && !strings.HasPrefix(attribute, "juicefs/") {
		c.find(id, "unknown attribute %s", attribute)
	}
}

func (c *cluster) checkOptions(id string, options []string) {
	for _, option := range options {
		name, _, _ := strings.Cut(option, "=")
		if len(c.options) > 0 && !slices.Contains(c.options, name) {
			c.find(id, "unknown mount option %s", name)
		}
	}
}

func (c *cluster) checkVolume(id string, volume *core.PersistentVolume) {
	csi := volume.Spec.CSI
	if csi == nil {
		c.find(id, "is not of a CSI driver")
		return
	}
	c.want(id, "CSIDriver", "", csi.Driver)
	c.checkOptions(id, volume.Spec.MountOptions)
	for attribute, value := range csi.VolumeAttributes {
		c.checkAttribute(id, attribute, value)
	}
	if csi.NodePublishSecretRef == nil {
		c.find(id, "names no Secret")
		return
	}
	c.checkSecret(id, csi.NodePublishSecretRef.Namespace, csi.NodePublishSecretRef.Name)
}

func (c *cluster) checkClaim(id string, claim *core.PersistentVolumeClaim) {
	class := ""
	if claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	if class != "" {
		c.want(id, "StorageClass", "", class)
	} else {
		c.checkStatic(id, claim)
	}
	if attributes := claim.Spec.VolumeAttributesClassName; attributes != nil {
		c.want(id, "VolumeAttributesClass", "", *attributes)
	}
	source := claim.Spec.DataSource
	if source == nil {
		return
	}
	origin := c.want(id, source.Kind, claim.Namespace, source.Name)
	if taken, is := origin.(*snapshot.VolumeSnapshot); is && taken.Spec.Source.PersistentVolumeClaimName != nil {
		origin = c.want(source.Name, "PersistentVolumeClaim", claim.Namespace, *taken.Spec.Source.PersistentVolumeClaimName)
	}
	if from, is := origin.(*core.PersistentVolumeClaim); is && room(from.Spec.Resources) > room(claim.Spec.Resources) {
		c.find(id, "is smaller than what it is made from")
	}
}

// A claim without a class is bound to the volume that it names, or stays pending.
func (c *cluster) checkStatic(id string, claim *core.PersistentVolumeClaim) {
	if claim.Spec.VolumeName == "" {
		c.find(id, "has neither a class nor a volume")
		return
	}
	volume, is := c.want(id, "PersistentVolume", "", claim.Spec.VolumeName).(*core.PersistentVolume)
	if !is {
		return
	}
	if volume.Spec.StorageClassName != "" {
		c.find(id, "has no class, but its volume has")
	}
	if storage := volume.Spec.Capacity[core.ResourceStorage]; storage.Value() < room(claim.Spec.Resources) {
		c.find(id, "asks for more than its volume has")
	}
	for _, mode := range claim.Spec.AccessModes {
		if !slices.Contains(volume.Spec.AccessModes, mode) {
			c.find(id, "asks for %s, which its volume does not allow", mode)
		}
	}
}

// Whether the second is the same claim with a larger request; records it if so.
func (c *cluster) grows(earlier, later runtime.Object) bool {
	before, was := earlier.(*core.PersistentVolumeClaim)
	after, is := later.(*core.PersistentVolumeClaim)
	if !was || !is || room(before.Spec.Resources) >= room(after.Spec.Resources) {
		return false
	}
	apart := before.DeepCopy()
	apart.Spec.Resources = after.Spec.Resources
	if !reflect.DeepEqual(apart, after) {
		return false
	}
	c.grown = append(c.grown, after)
	return true
}

func (c *cluster) checkGrowth(claim *core.PersistentVolumeClaim) {
	id := key("PersistentVolumeClaim", claim.Namespace, claim.Name)
	class, is := c.objects[key("StorageClass", "", *claim.Spec.StorageClassName)].(*storage.StorageClass)
	if is && (class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion) {
		c.find(id, "grows, but its class does not allow it")
	}
	if is && class.Parameters[prefix+"controller-expand-secret-name"] == "" {
		c.find(id, "grows, but its class names no Secret for that")
	}
}

func room(resources core.VolumeResourceRequirements) int64 {
	storage := resources.Requests[core.ResourceStorage]
	return storage.Value()
}

func (c *cluster) checkSnapshot(id string, taken *snapshot.VolumeSnapshot) {
	if class := taken.Spec.VolumeSnapshotClassName; class != nil {
		c.want(id, "VolumeSnapshotClass", "", *class)
	}
	if claim := taken.Spec.Source.PersistentVolumeClaimName; claim != nil {
		c.want(id, "PersistentVolumeClaim", taken.Namespace, *claim)
	} else {
		c.find(id, "is of no claim")
	}
}

func (c *cluster) checkVolumesOf(id, namespace string, pod *core.PodSpec) {
	for _, volume := range pod.Volumes {
		switch {
		case volume.PersistentVolumeClaim != nil:
			c.want(id, "PersistentVolumeClaim", namespace, volume.PersistentVolumeClaim.ClaimName)
		case volume.Secret != nil:
			c.want(id, "Secret", namespace, volume.Secret.SecretName)
		case volume.CSI != nil:
			c.want(id, "CSIDriver", "", volume.CSI.Driver)
			for attribute, value := range volume.CSI.VolumeAttributes {
				c.checkAttribute(id, attribute, value)
			}
			if ref := volume.CSI.NodePublishSecretRef; ref != nil {
				c.checkSecret(id, namespace, ref.Name)
			} else {
				c.find(id, "the inline volume %s names no Secret", volume.Name)
			}
		}
	}
}
