package container

import (
	"strings"
	"testing"
)

func TestOptionsAreCheckedBeforeAnythingHappens(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"relative path", Options{DataDir: "data"}, `"data" is not an absolute path`},
		{"one directory in the other", Options{DataDir: "/srv/k", RunDir: "/srv/k/run"}, "must be apart"},
		{"one directory for both", Options{DataDir: "/srv/k", RunDir: "/srv/k/"}, "must be apart"},
		{"root directory", Options{RunDir: "/"}, "must be apart"},
		{"root cgroup", Options{CgroupParent: "/"}, "the cgroup parent must not be the root"},
		{"unknown snapshotter", Options{Snapshotter: "zfs"}, `snapshotter "zfs" is neither overlayfs nor native`},
		{"runc replaced", Options{Handlers: Handlers{"runc": {}}}, "handler runc cannot be replaced"},
	} {
		if _, err := c.o.withDefaults(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
		if _, err := Reset(t.Context(), c.o); err == nil {
			t.Errorf("%s: reset accepts what new refuses", c.name)
		}
	}
}

func TestZeroOptionsAreThoseOfTheProduct(t *testing.T) {
	o, err := Options{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	for got, want := range map[string]string{
		o.DataDir: "/var/lib/kemudi", o.RunDir: "/run/kemudi", o.CNIConfDir: "/var/lib/kemudi/cni/net.d",
		o.binDir(): "/var/lib/kemudi/bin", o.rootDir(): "/var/lib/kemudi/containerd", o.stateDir(): "/run/kemudi/containerd",
		Options{}.Socket(): "/run/kemudi/containerd.sock", o.CgroupParent: "/kemudi",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// Every name in pluginSettings must be one that containerd knows: a plugin
// whose settings nobody reads would run with its defaults.
func TestSettingsNameExistingPluginsAndFields(t *testing.T) {
	o, err := Options{Snapshotter: snapshotterOverlay}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	conf := pluginSettings(o)
	for _, r := range registered(o) {
		if c, ok := conf[r.URI()]; ok {
			if err := decodeSettings(c, r.Config); err != nil {
				t.Errorf("settings of %s: %v", r.URI(), err)
			}
			delete(conf, r.URI())
		}
	}
	for id := range conf {
		t.Errorf("settings for %s, which is not loaded", id)
	}
	o.Handlers = Handlers{"crun": {Options: map[string]any{"BinaryName": "/usr/bin/crun"}}}
	crun := runtimeSettings(o)["containerd"].(map[string]any)["runtimes"].(map[string]any)["crun"].(map[string]any)
	if got := crun["options"].(map[string]any)["BinaryName"]; got != "/usr/bin/crun" || crun["runtime_path"] != "/var/lib/kemudi/bin/containerd-shim-runc-v2" {
		t.Errorf("handler with another runc: got %v", crun)
	}
}

func TestEndpointsAreUnixSockets(t *testing.T) {
	for endpoint, ok := range map[string]bool{
		"unix:///run/x.sock": true, "/run/x.sock": true, "": false, "tcp://127.0.0.1:1": false, "unix://run/x.sock": false, "npipe:////./pipe/x": false,
	} {
		_, closer, err := Dial(endpoint)
		if (err == nil) != ok {
			t.Errorf("dial %q: got %v, want success: %t", endpoint, err, ok)
		}
		if err == nil {
			closer.Close()
		}
	}
}
