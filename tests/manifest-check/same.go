package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
)

// Labels that name the tool that applied an object.
var toolLabels = []string{"app.kubernetes.io/managed-by", "app.kubernetes.io/instance", "app.kubernetes.io/version", "helm.sh/chart"}

// Returns the differences between the objects of two sources.
func differences(left, right string) ([]string, error) {
	ours, err := plain(left)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", left, err)
	}
	theirs, err := plain(right)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", right, err)
	}
	var found []string
	for _, id := range sorted(ours) {
		if other, there := theirs[id]; there {
			compare(&found, id, ours[id], other)
		} else {
			found = append(found, id+": only in "+left)
		}
	}
	for _, id := range sorted(theirs) {
		if _, there := ours[id]; !there {
			found = append(found, id+": only in "+right)
		}
	}
	return found, nil
}

// Returns objects as plain values, with defaults filled in.
func plain(source string) (map[string]any, error) {
	documents, err := render(source)
	if err != nil {
		return nil, err
	}
	objects := map[string]any{}
	for _, document := range documents {
		if blank(document.text) {
			continue
		}
		object, kind, err := decode(document.text)
		if err != nil {
			return nil, err
		}
		accessor, err := meta.Accessor(object)
		if err != nil {
			return nil, err
		}
		labels := accessor.GetLabels()
		for _, label := range toolLabels {
			delete(labels, label)
		}
		accessor.SetLabels(labels)
		text, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		var value any
		if err := json.Unmarshal(text, &value); err != nil {
			return nil, err
		}
		objects[key(kind.Kind, accessor.GetNamespace(), accessor.GetName())] = value
	}
	return objects, nil
}

// Descends to the difference.
func compare(found *[]string, place string, left, right any) {
	if reflect.DeepEqual(left, right) {
		return
	}
	switch ours := left.(type) {
	case map[string]any:
		theirs, is := right.(map[string]any)
		if !is {
			break
		}
		for _, key := range sorted(ours) {
			compare(found, place+"."+key, ours[key], theirs[key])
		}
		for _, key := range sorted(theirs) {
			if _, there := ours[key]; !there {
				compare(found, place+"."+key, nil, theirs[key])
			}
		}
		return
	case []any:
		theirs, is := right.([]any)
		if !is || len(ours) != len(theirs) {
			break
		}
		for i := range ours {
			compare(found, fmt.Sprintf("%s[%d]", place, i), ours[i], theirs[i])
		}
		return
	}
	*found = append(*found, fmt.Sprintf("%s: %s, %s", place, brief(left), brief(right)))
}

func brief(value any) string {
	text, _ := json.Marshal(value)
	return strings.ReplaceAll(string(text), "\n", " ")
}
