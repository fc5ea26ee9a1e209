package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/strvals"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// One YAML document and its origin.
type document struct {
	place string
	text  string
}

// Returns the documents of a source in a fixed order.
func render(source string) ([]document, error) {
	kind, path, found := strings.Cut(source, ":")
	if !found {
		return nil, fmt.Errorf("not a source; kustomize:DIR, helm:DIR or files:PATH")
	}
	switch kind {
	case "kustomize":
		return renderKustomize(path)
	case "helm":
		return renderHelm(path)
	case "files":
		return readFiles(path)
	}
	return nil, fmt.Errorf("unknown kind of source %q", kind)
}

func renderKustomize(dir string) ([]document, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	var documents []document
	for _, resource := range built.Resources() {
		text, err := resource.AsYAML()
		if err != nil {
			return nil, err
		}
		documents = append(documents, document{dir, string(text)})
	}
	return documents, nil
}

func renderHelm(spec string) ([]document, error) {
	dir, options, _ := strings.Cut(spec, "?")
	values := map[string]any{}
	for _, option := range strings.Split(options, "&") {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "":
		case "values":
			read, err := chartutil.ReadValuesFile(value)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", value, err)
			}
			values = chartutil.CoalesceTables(read, values)
		case "set":
			if err := strvals.ParseInto(value, values); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("unknown option %q", name)
		}
	}
	chart, err := loader.LoadDir(dir)
	if err != nil {
		return nil, err
	}
	if err := chart.Validate(); err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: "jfs-csi", Namespace: "kube-system", Revision: 1, IsInstall: true}
	// Also checks the values against values.schema.json.
	merged, err := chartutil.ToRenderValues(chart, values, release, chartutil.DefaultCapabilities.Copy())
	if err != nil {
		return nil, err
	}
	// Strict: a template that refers to a missing value is an error.
	rendered, err := engine.Engine{Strict: true}.Render(chart, merged)
	if err != nil {
		return nil, err
	}
	var documents []document
	for _, name := range sorted(rendered) {
		if strings.HasSuffix(name, "NOTES.txt") {
			documents = append(documents, document{name, commented(rendered[name])})
			continue
		}
		documents = append(documents, split(name, rendered[name])...)
	}
	return documents, nil
}

func readFiles(path string) ([]document, error) {
	var documents []document
	err := filepath.WalkDir(path, func(file string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(file, ".yaml") {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		documents = append(documents, split(file, string(text))...)
		return nil
	})
	return documents, err
}

var separator = regexp.MustCompile(`(?m)^---[ \t]*(#.*)?$`)

func split(place, text string) []document {
	var documents []document
	for _, part := range separator.Split(text, -1) {
		if !blank(part) {
			documents = append(documents, document{place, part})
		}
	}
	return documents
}

// Whether it has only comments.
func blank(text string) bool {
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			return false
		}
	}
	return true
}

// Text for users, as a document without an object.
func commented(text string) string {
	return "# " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n# ")
}

func sorted[V any](table map[string]V) []string {
	var keys []string
	for key := range table {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}
