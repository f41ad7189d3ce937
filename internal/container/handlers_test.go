package container

import (
	"strings"
	"testing"
)

func TestHandlersAreReadFromAFlag(t *testing.T) {
	var h Handlers
	const text = "crun=/usr/bin/crun,gvisor=io.containerd.runsc.v1,kata=/opt/kata/bin/containerd-shim-kata-qemu-v2"
	if err := h.Set(text); err != nil || h.String() != text {
		t.Fatalf("got %s, %v, want %s", h.String(), err, text)
	}
	o, err := Options{Handlers: h}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	all := handlerSettings(o)
	for name, want := range map[string][3]string{
		"runc":   {"io.containerd.runc.v2", "/var/lib/kemudi/bin/containerd-shim-runc-v2", "/var/lib/kemudi/bin/runc"},
		"crun":   {"io.containerd.runc.v2", "/var/lib/kemudi/bin/containerd-shim-runc-v2", "/usr/bin/crun"},
		"gvisor": {"io.containerd.runsc.v1", "", ""},
		"kata":   {"io.containerd.kata-qemu.v2", "/opt/kata/bin/containerd-shim-kata-qemu-v2", ""},
	} {
		one, _ := all[name].(map[string]any)
		options, _ := one["options"].(map[string]any)
		binary, _ := options["BinaryName"].(string)
		if got := [3]any{one["runtime_type"], one["runtime_path"], binary}; got != [3]any{want[0], want[1], want[2]} {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	for text, want := range map[string]string{
		"crun": "is not of the form name=program", "=x": "is not of the form name=program", "runc=/usr/bin/crun": "the handler runc is the built-in one",
		"crun=bin/crun": "is neither the absolute path of a program nor the name of a shim", "crun=crun": "is neither", "kata=/bin/containerd-shim-kata": "the name of a shim is as containerd-shim-kata-v2",
	} {
		if err := h.Set(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q in it", text, err, want)
		}
	}
}
