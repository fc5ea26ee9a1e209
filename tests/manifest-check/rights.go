package main

import (
	"slices"

	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/rbac"
)

func (c *cluster) checkRights() {
	each(c, func(id string, role *rbac.Role) { c.checkRules(id, role.Rules) })
	each(c, func(id string, role *rbac.ClusterRole) { c.checkRules(id, role.Rules) })
	bound := map[string]bool{}
	each(c, func(id string, binding *rbac.RoleBinding) {
		c.checkBinding(id, binding.Namespace, binding.RoleRef, binding.Subjects, bound)
	})
	each(c, func(id string, binding *rbac.ClusterRoleBinding) {
		c.checkBinding(id, "", binding.RoleRef, binding.Subjects, bound)
	})
	for _, id := range c.order {
		switch c.objects[id].(type) {
		case *rbac.Role, *rbac.ClusterRole:
			if !bound[id] {
				c.find(id, "is bound to nobody")
			}
		}
	}
	each(c, func(id string, account *core.ServiceAccount) {
		if !c.accountIsUsed(account) {
			c.find(id, "no pod uses it")
		}
	})
}

// Permissions must be listed one by one, and Secrets may only be read by name.
func (c *cluster) checkRules(id string, rules []rbac.PolicyRule) {
	for _, rule := range rules {
		for _, names := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs} {
			if slices.Contains(names, "*") {
				c.find(id, "a rule says *")
			}
		}
		if slices.Contains(rule.Resources, "secrets") && !slices.Equal(rule.Verbs, []string{"get"}) {
			c.find(id, "Secrets may only be read by name, not %v", rule.Verbs)
		}
	}
}

func (c *cluster) checkBinding(id, namespace string, ref rbac.RoleRef, subjects []rbac.Subject, bound map[string]bool) {
	if ref.Kind == "ClusterRole" {
		namespace = ""
	}
	c.want(id, ref.Kind, namespace, ref.Name)
	bound[key(ref.Kind, namespace, ref.Name)] = true
	for _, subject := range subjects {
		if subject.Kind != "ServiceAccount" {
			c.find(id, "rights for a %s", subject.Kind)
			continue
		}
		c.want(id, "ServiceAccount", subject.Namespace, subject.Name)
	}
}

func (c *cluster) accountIsUsed(account *core.ServiceAccount) bool {
	used := false
	c.eachTemplate(func(_, namespace string, template *core.PodTemplateSpec) {
		used = used || namespace == account.Namespace && template.Spec.ServiceAccountName == account.Name
	})
	return used
}
