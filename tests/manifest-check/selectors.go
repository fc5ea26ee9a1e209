package main

import (
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/networking"
	"k8s.io/kubernetes/pkg/apis/policy"
)

// A selector that matches nothing has no effect.
func (c *cluster) checkSelectors() {
	each(c, func(id string, budget *policy.PodDisruptionBudget) {
		c.checkSelects(id, budget.Namespace, budget.Spec.Selector)
	})
	each(c, func(id string, rules *networking.NetworkPolicy) { c.checkNetwork(id, rules) })
	each(c, func(id string, service *core.Service) { c.checkService(id, service) })
	each(c, func(id string, monitor *monitoring.ServiceMonitor) { c.checkMonitor(id, monitor) })
	c.eachTemplate(func(id, namespace string, template *core.PodTemplateSpec) {
		affinity := template.Spec.Affinity
		if affinity == nil || affinity.PodAntiAffinity == nil {
			return
		}
		for _, term := range affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			c.checkSelects(id+", anti-affinity", namespace, term.PodAffinityTerm.LabelSelector)
		}
	})
}

func (c *cluster) checkSelects(id, namespace string, selector *metav1.LabelSelector) {
	chosen, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		c.find(id, "%v", err)
		return
	}
	if len(c.selected(namespace, chosen)) == 0 {
		c.find(id, "selects no pods")
	}
}

// A policy for ports that no pod has blocks the clients that it should admit.
func (c *cluster) checkNetwork(id string, rules *networking.NetworkPolicy) {
	c.checkSelects(id, rules.Namespace, &rules.Spec.PodSelector)
	chosen, err := metav1.LabelSelectorAsSelector(&rules.Spec.PodSelector)
	if err != nil {
		return
	}
	for _, template := range c.selected(rules.Namespace, chosen) {
		if !listens(template) {
			continue
		}
		for _, rule := range rules.Spec.Ingress {
			for _, port := range rule.Ports {
				if port.Port != nil && !hasPort(template, port.Port.StrVal, port.Port.IntVal) {
					c.find(id, "lets in to port %s, which a pod does not have", port.Port.String())
				}
			}
		}
	}
}

func (c *cluster) checkService(id string, service *core.Service) {
	chosen := c.selected(service.Namespace, labels.SelectorFromSet(service.Spec.Selector))
	if len(chosen) == 0 {
		c.find(id, "selects no pods")
	}
	for _, port := range service.Spec.Ports {
		for _, template := range chosen {
			if !hasPort(template, port.TargetPort.StrVal, port.TargetPort.IntVal) {
				c.find(id, "leads to port %s, which a pod does not have", port.TargetPort.String())
			}
		}
	}
}

func (c *cluster) checkMonitor(id string, monitor *monitoring.ServiceMonitor) {
	chosen, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
	if err != nil {
		c.find(id, "%v", err)
		return
	}
	found := false
	each(c, func(_ string, service *core.Service) {
		if service.Namespace != monitor.Namespace || !chosen.Matches(labels.Set(service.Labels)) {
			return
		}
		for _, endpoint := range monitor.Spec.Endpoints {
			for _, port := range service.Spec.Ports {
				found = found || port.Name == endpoint.Port
			}
		}
	})
	if !found {
		c.find(id, "selects no Service with its port")
	}
}

func (c *cluster) eachTemplate(act func(id, namespace string, template *core.PodTemplateSpec)) {
	each(c, func(id string, set *apps.DaemonSet) { act(id, set.Namespace, &set.Spec.Template) })
	each(c, func(id string, deployment *apps.Deployment) { act(id, deployment.Namespace, &deployment.Spec.Template) })
}

func (c *cluster) selected(namespace string, selector labels.Selector) []*core.PodTemplateSpec {
	var chosen []*core.PodTemplateSpec
	c.eachTemplate(func(_, where string, template *core.PodTemplateSpec) {
		if where == namespace && selector.Matches(labels.Set(template.Labels)) {
			chosen = append(chosen, template)
		}
	})
	return chosen
}

func hasPort(template *core.PodTemplateSpec, name string, number int32) bool {
	for _, container := range template.Spec.Containers {
		for _, port := range container.Ports {
			if name != "" && port.Name == name || name == "" && port.ContainerPort == number {
				return true
			}
		}
	}
	return false
}

// Whether anybody can connect to a pod at all.
func listens(template *core.PodTemplateSpec) bool {
	for _, container := range template.Spec.Containers {
		if len(container.Ports) > 0 {
			return true
		}
	}
	return false
}
