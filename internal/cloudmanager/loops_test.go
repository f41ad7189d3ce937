package cloudmanager

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/trace"
)

func TestOnlyTheLoopsOfACloudRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cloud.yaml")
	if err := os.WriteFile(file, []byte("machines: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Defaults()
	o.Controllers.Cloud.Name, o.Controllers.Cloud.ConfigFile = "loopback", file
	if err := o.open(); err != nil {
		t.Fatal(err)
	}
	o.Controllers.Kinds = controller.Fixed{}
	want := map[string]bool{}
	for _, name := range []string{"cloud-node-controller", "cloud-node-lifecycle-controller", "route-controller", "service-controller"} {
		want[name] = true
	}
	trace.Proves(t, "COMP-017")
	for _, c := range controllers.OfCloud(o.Controllers) {
		if !want[c.Name] && c.Name != "cluster-autoscaler" {
			t.Errorf("%s runs, which is no loop of a cloud", c.Name)
		}
		delete(want, c.Name)
	}
	if len(want) > 0 {
		t.Errorf("loops of the cloud that do not run: %v", want)
	}
}
