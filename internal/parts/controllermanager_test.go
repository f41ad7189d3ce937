package parts

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/controllers/cloud"
	"github.com/kemudi/kemudi/internal/trace"
)

// TestExternalCloudHasItsLoopsElsewhere compares the controllers with a cloud that is built in.
func TestExternalCloudHasItsLoopsElsewhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cloud.yaml")
	if err := os.WriteFile(file, []byte("machines: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	loops := func(name, config string) (n int) {
		o := DefaultControllerManager()
		o.Controllers.Cloud.Name, o.Controllers.Cloud.ConfigFile = name, config
		if err := o.open(&process{config: &rest.Config{}, registry: prometheus.NewRegistry()}); err != nil {
			t.Fatal(err)
		}
		o.Controllers.Kinds = controller.Fixed{}
		for _, c := range controllers.All(o.Controllers) {
			if cloud.Loop(c) {
				n++
			}
		}
		return n
	}
	if got := loops("loopback", file); got == 0 {
		t.Error("a built-in cloud: got none of its loops")
	}
	for _, name := range []string{"external", ""} {
		if got := loops(name, ""); got != 0 {
			t.Errorf("--cloud-provider %q: got %d loops of a cloud, want none", name, got)
		}
	}
	trace.Proves(t, "COMP-018")
}

func TestGarbageIsLeftWhereThatIsAskedFor(t *testing.T) {
	for _, words := range [][]string{nil, {"*"}, {"garbage-collector-controller", "deployment-controller"}} {
		o := DefaultControllerManager()
		o.NoGarbage, o.Controllers.Enabled = true, words
		if err := o.open(&process{config: &rest.Config{}, registry: prometheus.NewRegistry()}); err != nil {
			t.Fatal(err)
		}
		o.Controllers.Kinds = controller.Fixed{}
		var names []string
		for _, c := range o.Controllers.Running(controllers.All(o.Controllers)) {
			names = append(names, c.Name)
		}
		if slices.Contains(names, "generic-garbage-collector") || !slices.Contains(names, "deployment-controller") {
			t.Errorf("of --controllers %q without the garbage collector: got %q", words, names)
		}
	}
}

func TestControllerManagerWantsWhatBelongsTogether(t *testing.T) {
	for want, change := range map[string]func(o *ControllerManager){
		"--cluster-signing-cert-file and --cluster-signing-key-file go together":                               func(o *ControllerManager) { o.Keys.Signing.Key = "key" },
		"--cluster-signing-kubelet-client-cert-file and --cluster-signing-kubelet-client-key-file go together": func(o *ControllerManager) { o.Keys.Signers[OwnSigners()[1]].Cert = "cert" },
		"--cluster-signing-legacy-unknown-cert-file: there is --cluster-signing-cert-file for all signers": func(o *ControllerManager) {
			o.Keys.Signing, *o.Keys.Signers[OwnSigners()[3]] = AuthorityFiles{"cert", "key"}, AuthorityFiles{"cert", "key"}
		},
		"--tls-cert-file and --tls-private-key-file go together": func(o *ControllerManager) { o.Secure.CertFile = "cert" },
		"--leader-elect-resource-name: want one name":            func(o *ControllerManager) { o.Election.Names = nil },
	} {
		o := DefaultControllerManager()
		change(&o)
		if err := o.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
