package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kemudi/kemudi/test/wait"
)

// kubectl is one way to run kubectl against a cluster.
type kubectl struct {
	*cluster
	name      string
	command   []string
	namespace string // empty: the default one
}

// kubectls are the unmodified kubectl, if this host has one, and ours.
func (c *cluster) kubectls() (list []kubectl) {
	if path, err := exec.LookPath("kubectl"); err == nil {
		list = append(list, kubectl{cluster: c, name: "kubectl", command: []string{path}})
	}
	return append(list, c.kubectl())
}

// kubectl is ours.
func (c *cluster) kubectl() kubectl {
	return kubectl{cluster: c, name: "kemudi kubectl", command: []string{c.bin, "kubectl"}}
}

// in is the same for another namespace.
func (k kubectl) in(namespace string) kubectl {
	k.namespace = namespace
	return k
}

func (k kubectl) line(args ...string) []string {
	line := append([]string{}, k.command...)
	if k.namespace != "" {
		line = append(line, "--namespace="+k.namespace)
	}
	return append(line, args...)
}

// try runs a command that may fail.
func (k kubectl) try(t *testing.T, stdin string, args ...string) output {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), wait.Patience+time.Minute)
	defer cancel()
	return k.machine.run(ctx, strings.NewReader(stdin), k.line(args...)...)
}

// do runs a command that must succeed and returns what it printed.
func (k kubectl) do(t *testing.T, args ...string) string {
	t.Helper()
	o := k.try(t, "", args...)
	if o.code != 0 {
		t.Fatalf("%s %s: exit code %d\n%s", k.name, strings.Join(args, " "), o.code, o.all())
	}
	if strings.Contains(o.stderr, "deprecated") || strings.Contains(o.stderr, "could also match") {
		t.Errorf("%s %s warns: %s", k.name, strings.Join(args, " "), o.stderr)
	}
	return o.stdout
}

// apply applies a manifest and returns what was printed.
func (k kubectl) apply(t *testing.T, manifest string) string {
	t.Helper()
	o := k.try(t, manifest, "apply", "-f", "-")
	if o.code != 0 {
		t.Fatalf("%s apply: exit code %d\n%s\n%s", k.name, o.code, o.all(), manifest)
	}
	return o.stdout
}

// contains says which of the texts are not in the output.
func contains(out string, texts []string) error {
	for _, text := range texts {
		if !strings.Contains(out, text) {
			return fmt.Errorf("got\n%s\nwant it to contain %q", out, text)
		}
	}
	return nil
}

// wants fails the test unless the output has every text.
func (k kubectl) wants(t *testing.T, texts []string, args ...string) string {
	t.Helper()
	out := k.do(t, args...)
	if err := contains(out, texts); err != nil {
		t.Errorf("%s %s: %v", k.name, strings.Join(args, " "), err)
	}
	return out
}
