package main

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/apis/core"
)

// All rendered objects, as one cluster would hold them.
type cluster struct {
	objects  map[string]runtime.Object
	order    []string
	flags    []string
	options  []string
	grown    []*core.PersistentVolumeClaim
	findings []string
}

func newCluster(flags, options []string) *cluster {
	return &cluster{objects: map[string]runtime.Object{}, flags: flags, options: options}
}

func key(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

func (c *cluster) add(document document) {
	if blank(document.text) {
		return
	}
	object, kind, err := decode(document.text)
	if err != nil {
		c.find(document.place, "%v", err)
		return
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		c.find(document.place, "%v", err)
		return
	}
	id := key(kind.Kind, accessor.GetNamespace(), accessor.GetName())
	for _, fault := range validate(object) {
		c.find(document.place+": "+id, "%v", fault)
	}
	if earlier, taken := c.objects[id]; taken && !c.grows(earlier, object) {
		c.find(document.place, "%s is there twice", id)
		return
	} else if taken {
		c.objects[id] = object
		return
	}
	c.objects[id] = object
	c.order = append(c.order, id)
}

// Records a finding, once.
func (c *cluster) find(place, format string, args ...any) {
	finding := place + ": " + strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")
	for _, known := range c.findings {
		if known == finding {
			return
		}
	}
	c.findings = append(c.findings, finding)
}

// Records that `place` refers to a missing object.
func (c *cluster) want(place, kind, namespace, name string) runtime.Object {
	object, found := c.objects[key(kind, namespace, name)]
	if !found {
		c.find(place, "names %s, which does not exist", key(kind, namespace, name))
		return nil
	}
	return object
}

// Returns all objects of a type, with their names.
func each[T runtime.Object](c *cluster, act func(id string, object T)) {
	for _, id := range c.order {
		if object, is := c.objects[id].(T); is {
			act(id, object)
		}
	}
}

func (c *cluster) checkAll() {
	c.checkWorkloads()
	c.checkRights()
	c.checkStorage()
	c.checkSelectors()
}
