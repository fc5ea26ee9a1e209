package main

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/storage"
)

// The name of the driver's container.
const driver = "jfs-csi"

// The flags of the sidecars that are used here, by image name; from their sources.
var sidecars = map[string][]string{
	"csi-provisioner": {"csi-address", "default-fstype", "extra-create-metadata", "feature-gates", "http-endpoint", "leader-election", "timeout", "worker-threads"},
	"csi-resizer":     {"csi-address", "feature-gates", "handle-volume-inuse-error", "http-endpoint", "leader-election", "timeout", "workers"},
	"csi-snapshotter": {"csi-address", "feature-gates", "http-endpoint", "leader-election", "timeout", "worker-threads"},

	"csi-node-driver-registrar": {"csi-address", "kubelet-registration-path", "plugin-registration-path", "timeout"},
}

func (c *cluster) checkWorkloads() {
	each(c, func(id string, set *apps.DaemonSet) { c.checkTemplate(id, set.Namespace, &set.Spec.Template) })
	each(c, func(id string, deployment *apps.Deployment) {
		c.checkTemplate(id, deployment.Namespace, &deployment.Spec.Template)
	})
	each(c, func(id string, pod *core.Pod) { c.checkPod(id, pod.Namespace, &pod.Spec) })
	c.checkKeepers()
}

func (c *cluster) checkTemplate(id, namespace string, template *core.PodTemplateSpec) {
	c.checkPod(id, namespace, &template.Spec)
	for _, container := range template.Spec.Containers {
		if container.Name == driver {
			c.checkDriver(id, template, &container)
		}
	}
}

// Rules for every pod.
func (c *cluster) checkPod(id, namespace string, pod *core.PodSpec) {
	if account := pod.ServiceAccountName; account != "" && account != "default" {
		c.want(id, "ServiceAccount", namespace, account)
	}
	for _, container := range pod.Containers {
		place := id + ", container " + container.Name
		c.checkImage(place, container.Image)
		c.checkProbes(place, &container)
		known, isSidecar := sidecars[imageName(container.Image)]
		if container.Name == driver {
			known, isSidecar = c.flags, len(c.flags) > 0
		}
		if container.Name == keeper {
			known, isSidecar = []string{"socket", "orphan-timeout"}, true
		}
		flags := parse(container.Args)
		if isSidecar {
			for _, flag := range flags {
				if !slices.Contains(known, flag.name) {
					c.find(place, "unknown flag --%s", flag.name)
				}
			}
		}
		if address := value(flags, "csi-address"); address != "" {
			c.checkSocket(place, pod, address)
		}
		for i, flag := range flags {
			if slices.ContainsFunc(flags[:i], func(earlier flagged) bool { return earlier.name == flag.name }) {
				c.find(place, "--%s is there twice", flag.name)
			}
		}
	}
}

func (c *cluster) checkImage(place, image string) {
	name := image[strings.LastIndex(image, "/")+1:]
	_, tag, tagged := strings.Cut(name, ":")
	if !tagged || tag == "" || tag == "latest" {
		c.find(place, "image %s has no version", image)
	}
}

func imageName(image string) string {
	name, _, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	return name
}

func (c *cluster) checkProbes(place string, container *core.Container) {
	for _, probe := range []*core.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil {
			continue
		}
		port := probe.HTTPGet.Port
		if !slices.ContainsFunc(container.Ports, func(p core.ContainerPort) bool {
			return p.Name == port.StrVal || port.StrVal == "" && p.ContainerPort == port.IntVal
		}) {
			c.find(place, "a probe asks at port %s, which the container does not have", port.String())
		}
	}
}

// A sidecar and the driver must share the volume of the socket.
func (c *cluster) checkSocket(place string, pod *core.PodSpec, address string) {
	for i := range pod.Containers {
		ours := &pod.Containers[i]
		if ours.Name != driver {
			continue
		}
		endpoint := strings.TrimPrefix(value(parse(ours.Args), "endpoint"), "unix://")
		mine := volumeAt(pod, place[strings.LastIndex(place, " ")+1:], path.Dir(address))
		if mine == nil || mine != volumeAt(pod, driver, path.Dir(endpoint)) || path.Base(address) != path.Base(endpoint) {
			c.find(place, "the socket %s is not the driver's %s", address, endpoint)
		}
	}
}

// Returns the volume that a container has mounted exactly at a path.
func volumeAt(pod *core.PodSpec, container, where string) *core.Volume {
	mount := mountAt(pod, container, where)
	if mount == nil {
		return nil
	}
	for i := range pod.Volumes {
		if pod.Volumes[i].Name == mount.Name {
			return &pod.Volumes[i]
		}
	}
	return nil
}

func mountAt(pod *core.PodSpec, container, where string) *core.VolumeMount {
	for i := range pod.Containers {
		for j := range pod.Containers[i].VolumeMounts {
			if mount := &pod.Containers[i].VolumeMounts[j]; pod.Containers[i].Name == container && mount.MountPath == where {
				return mount
			}
		}
	}
	return nil
}

// Returns the number of a named port of the container.
func portNamed(container *core.Container, number string) string {
	for _, port := range container.Ports {
		if strconv.Itoa(int(port.ContainerPort)) == number {
			return port.Name
		}
	}
	return ""
}

// Rules for the driver.
func (c *cluster) checkDriver(id string, template *core.PodTemplateSpec, container *core.Container) {
	pod := &template.Spec
	flags := parse(container.Args)
	name := variable(container, "DRIVER_NAME")
	c.want(id+", DRIVER_NAME", "CSIDriver", "", name)
	if variable(container, "NODE_NAME") != "spec.nodeName" && value(flags, "nodeid") == "" {
		c.find(id, "the driver is not told its node")
	}
	_, port, _ := strings.Cut(value(flags, "http"), ":")
	_, health, _ := strings.Cut(value(flags, "health"), ":")
	for flag, port := range map[string]string{"http": port, "health": health} {
		if portNamed(container, port) == "" {
			c.find(id, "--%s has port %q, which the container does not have", flag, port)
		}
	}
	for _, probe := range []*core.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
		if probe != nil && probe.HTTPGet != nil && probe.HTTPGet.Port.String() != portNamed(container, health) {
			c.find(id, "a probe asks port %s, and health is at %s", probe.HTTPGet.Port.String(), health)
		}
	}
	if scraped, there := template.Annotations["prometheus.io/port"]; there && scraped != port {
		c.find(id, "Prometheus is sent to port %s, not %s", scraped, port)
	}
	drain, err := time.ParseDuration(value(flags, "drain-timeout"))
	if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; err != nil || drain >= grace {
		c.find(id, "the grace period of %v does not leave time to drain (%v)", grace, drain)
	}
	for _, folder := range []string{"state-dir", "cache-dir"} {
		if where := value(flags, folder); where != "" && mountAt(pod, driver, where) == nil {
			c.find(id, "--%s=%s is not a mount", folder, where)
		}
	}
	privileged := container.SecurityContext != nil && container.SecurityContext.Privileged != nil && *container.SecurityContext.Privileged
	switch mode := value(flags, "mode"); mode {
	case "controller":
		if privileged {
			c.find(id, "a controller needs no privileges")
		}
		c.checkTokens(id, pod)
	case "node", "all":
		if !privileged {
			c.find(id, "a node cannot mount without being privileged")
		}
		c.checkNode(id, pod, flags, name)
	default:
		c.find(id, "unknown mode %q", mode)
	}
}

// Where a container finds its service account token.
const tokens = "/var/run/secrets/kubernetes.io/serviceaccount"

// A container has a token if and only if it uses the Kubernetes API.
func (c *cluster) checkTokens(id string, pod *core.PodSpec) {
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		c.find(id, "every container gets the token of the account")
	}
	for _, container := range pod.Containers {
		if container.Name != driver && mountAt(pod, container.Name, tokens) == nil {
			c.find(id, "%s has no token", container.Name)
		}
	}
}

func (c *cluster) checkNode(id string, pod *core.PodSpec, flags []flagged, name string) {
	socket := volumeAt(pod, driver, path.Dir(strings.TrimPrefix(value(flags, "endpoint"), "unix://")))
	if socket == nil || socket.HostPath == nil {
		c.find(id, "the socket is not in a directory of the host")
		return
	}
	registrars := 0
	for _, container := range pod.Containers {
		registered := value(parse(container.Args), "kubelet-registration-path")
		if registered == "" {
			continue
		}
		registrars++
		if path.Dir(registered) != socket.HostPath.Path || path.Base(registered) != path.Base(value(flags, "endpoint")) {
			c.find(id, "kubelet is told %s, but the socket is in %s", registered, socket.HostPath.Path)
		}
		if path.Base(path.Dir(registered)) != name {
			c.find(id, "the directory of the socket %s is not named like the driver %s", registered, name)
		}
		registry := volumeAt(pod, container.Name, "/registration")
		if registry == nil || registry.HostPath == nil || path.Base(registry.HostPath.Path) != "plugins_registry" {
			c.find(id, "%s cannot reach kubelet's registry", container.Name)
		}
	}
	if registrars != 1 {
		c.find(id, "%d programs register the driver with kubelet", registrars)
	}
	kubelet := path.Dir(path.Dir(socket.HostPath.Path))
	if below := value(flags, "kubelet-dir"); below != kubelet {
		c.find(id, "volumes are published below %s, not below %s", kubelet, below)
	}
	for _, where := range []string{kubelet, value(flags, "state-dir")} {
		mount := mountAt(pod, driver, where)
		if mount == nil || mount.MountPropagation == nil || *mount.MountPropagation != core.MountPropagationBidirectional {
			c.find(id, "%s must be mounted there, with Bidirectional propagation", where)
			continue
		}
		if volume := volumeAt(pod, driver, where); volume == nil || volume.HostPath == nil || volume.HostPath.Path != where {
			c.find(id, "%s must be the host's directory of the same path", where)
		}
	}
	each(c, func(_ string, csi *storage.CSIDriver) {
		if csi.Name == name && (csi.Spec.RequiresRepublish == nil || !*csi.Spec.RequiresRepublish) {
			c.find(id, "without requiresRepublish no mount comes back after a restart")
		}
	})
}

type flagged struct{ name, value string }

// Flags are always written as one argument here.
func parse(args []string) []flagged {
	var flags []flagged
	for _, arg := range args {
		name, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		flags = append(flags, flagged{name, value})
	}
	return flags
}

func value(flags []flagged, name string) string {
	for _, flag := range flags {
		if flag.name == name {
			return flag.value
		}
	}
	return ""
}

// Returns the value of a variable, or the field that it comes from.
func variable(container *core.Container, name string) string {
	for _, variable := range container.Env {
		if variable.Name == name {
			if from := variable.ValueFrom; from != nil && from.FieldRef != nil {
				return from.FieldRef.FieldPath
			}
			return variable.Value
		}
	}
	return ""
}
