package container

import (
	"fmt"
	"os"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestDevicesOfCDIReachAContainer(t *testing.T) {
	for _, dir := range []string{"/etc/cdi", "/var/run/cdi"} {
		t.Run(dir, func(t *testing.T) {
			h := newHost(t)
			if _, err := os.Stat(dir); err != nil {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { os.Remove(dir) })
			}
			spec := fmt.Sprintf("%s/kemudi-test-%d.json", dir, os.Getpid())
			t.Cleanup(func() { os.Remove(spec) })
			h.start() // a driver comes later
			if err := os.WriteFile(spec, []byte(`{"cdiVersion": "0.6.0", "kind": "test.kemudi.io/null", "devices": [{"name": "one", "containerEdits":
				{"env": ["CDI=yes"], "deviceNodes": [{"path": "/dev/of-cdi", "hostPath": "/dev/null"}]}}]}`), 0o644); err != nil {
				t.Fatal(err)
			}
			h.busybox()
			p := h.runPod(h.cri(), "one")
			id := p.runConfig(&runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: busyboxName}, Command: []string{"sleep", "1000"}, LogPath: "c.log",
				CDIDevices: []*runtimeapi.CDIDevice{{Name: "test.kemudi.io/null=one"}},
			})
			if got := p.exec(id, "sh", "-c", "test -c /dev/of-cdi && echo x >/dev/of-cdi && echo $CDI"); got != "yes\n" {
				t.Errorf("in the container: got %q, want the device and its variable", got)
			}
			other := p.run("other", "sleep", "1000")
			if got := p.exec(other, "sh", "-c", "ls /dev/of-cdi 2>&1 >/dev/null | wc -l; echo $CDI"); got != "1\n\n" {
				t.Errorf("in a container without devices: got %q", got)
			}
		})
	}
}
