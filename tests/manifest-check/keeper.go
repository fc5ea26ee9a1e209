package main

import (
	"path"
	"slices"

	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/core"
)

// The name of the keeper's container.
const keeper = "jfs-keeper"

// The keeper holds what it does not understand: it needs nothing, and outlives the driver.
func (c *cluster) checkKeepers() {
	each(c, func(id string, set *apps.DaemonSet) {
		for i := range set.Spec.Template.Spec.Containers {
			if container := &set.Spec.Template.Spec.Containers[i]; container.Name == keeper {
				c.checkKeeper(id, set, container)
			}
		}
	})
	each(c, func(id string, set *apps.DaemonSet) {
		pod := &set.Spec.Template.Spec
		for i := range pod.Containers {
			if socket := value(parse(pod.Containers[i].Args), "keeper"); pod.Containers[i].Name == driver && socket != "" {
				c.checkKept(id, pod, socket)
			}
		}
	})
}

func (c *cluster) checkKeeper(id string, set *apps.DaemonSet, container *core.Container) {
	pod := &set.Spec.Template.Spec
	if set.Spec.UpdateStrategy.Type != apps.OnDeleteDaemonSetStrategyType {
		c.find(id, "a keeper must not be replaced together with the driver")
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		c.find(id, "a keeper needs no token")
	}
	if shared := pod.SecurityContext; shared != nil && (shared.HostPID || shared.HostNetwork || shared.HostIPC) {
		c.find(id, "a keeper needs nothing of the host")
	}
	if security := container.SecurityContext; security == nil || security.Privileged != nil && *security.Privileged ||
		security.Capabilities == nil || !slices.Contains(security.Capabilities.Drop, "ALL") || len(security.Capabilities.Add) > 0 {
		c.find(id, "a keeper needs no capabilities")
	}
	if len(container.Command) != 1 || path.Base(container.Command[0]) != keeper {
		c.find(id, "the container does not run %s", keeper)
	}
	socket := value(parse(container.Args), "socket")
	if volume := volumeAt(pod, keeper, path.Dir(socket)); volume == nil || volume.HostPath == nil {
		c.find(id, "the socket %s is not in a directory of the host", socket)
	}
	if len(container.VolumeMounts) != 1 {
		c.find(id, "a keeper sees more than its socket")
	}
}

// The driver must reach the socket of a keeper on the same node.
func (c *cluster) checkKept(id string, pod *core.PodSpec, socket string) {
	ours := volumeAt(pod, driver, path.Dir(socket))
	found := false
	each(c, func(_ string, set *apps.DaemonSet) {
		theirs := &set.Spec.Template.Spec
		for _, container := range theirs.Containers {
			served := value(parse(container.Args), "socket")
			volume := volumeAt(theirs, keeper, path.Dir(served))
			if container.Name == keeper && ours != nil && ours.HostPath != nil && volume != nil && volume.HostPath != nil &&
				volume.HostPath.Path == ours.HostPath.Path && path.Base(served) == path.Base(socket) {
				found = true
			}
		}
	})
	if !found {
		c.find(id, "no keeper listens at --keeper=%s", socket)
	}
}
