// Renders and checks the manifests of this repository, without a cluster.
//
// Every document is decoded strictly into the types of the API server, defaulted and validated by the
// API server's own code; that finds what `kubectl apply` would refuse. The rules here find mistakes that an
// API server accepts and only a running cluster would show: a reference to a missing object, a path that is
// not mounted, an unknown flag of a program.
//
//	manifest-check check [--flags LIST] [--options LIST] SOURCE...  findings, one a line; fails if there are any
//	manifest-check render SOURCE                                    the documents
//	manifest-check same SOURCE SOURCE                               the differences between two sources
//
// The lists are the flags of jfs-csi and the mount options; without them, all are accepted.
// A SOURCE is kustomize:DIR, files:PATH, or helm:DIR, optionally with ?values=FILE and &set=PATH=VALUE. The
// documents of all sources form one cluster.
package main

import (
	"fmt"
	"os"
	"strings"
)

func main() {
	findings, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "manifest-check:", err)
		os.Exit(2)
	}
	for _, finding := range findings {
		fmt.Println(finding)
	}
	if len(findings) > 0 {
		os.Exit(1)
	}
}

func run(args []string) ([]string, error) {
	if len(args) < 2 {
		return nil, fmt.Errorf("usage: manifest-check check|render|same SOURCE...")
	}
	command, rest := args[0], args[1:]
	switch command {
	case "check":
		known := map[string][]string{}
		for len(rest) > 2 && strings.HasPrefix(rest[0], "--") {
			known[rest[0]], rest = strings.Split(rest[1], ","), rest[2:]
		}
		return check(rest, newCluster(known["--flags"], known["--options"]))
	case "render":
		return nil, show(rest[0])
	case "same":
		if len(rest) != 2 {
			return nil, fmt.Errorf("same takes two sources")
		}
		return differences(rest[0], rest[1])
	}
	return nil, fmt.Errorf("unknown command %q", command)
}

func check(sources []string, cluster *cluster) ([]string, error) {
	for _, source := range sources {
		documents, err := render(source)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		if len(documents) == 0 {
			return nil, fmt.Errorf("%s: no documents", source)
		}
		for _, document := range documents {
			cluster.add(document)
		}
	}
	cluster.checkAll()
	return cluster.findings, nil
}

func show(source string) error {
	documents, err := render(source)
	if err != nil {
		return err
	}
	for _, document := range documents {
		fmt.Printf("---\n# %s\n%s\n", document.place, strings.TrimSpace(document.text))
	}
	return nil
}
