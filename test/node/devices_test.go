package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/apitest"
	"github.com/kemudi/kemudi/internal/kubelet/fakeplugin"
	"github.com/kemudi/kemudi/test/wait"
)

// A pod gets a device file, a variable and a mount of a plugin, and what a CDI device is on the machine; so does
// its next container, also of another agent.
func e2eDevices(t *testing.T, m *machine) {
	const resource = "test.kemudi.io/gpu"
	if err := os.Mkdir("/var/run/cdi", 0o755); err == nil {
		t.Cleanup(func() { os.Remove("/var/run/cdi") }) // after what is in it
	} else if !os.IsExist(err) {
		t.Fatal(err)
	}
	spec := fmt.Sprintf("/var/run/cdi/kemudi-test-%d.json", os.Getpid())
	t.Cleanup(func() { os.Remove(spec) })
	if err := os.WriteFile(spec, []byte(`{"cdiVersion": "0.6.0", "kind": "`+resource+`", "devices": [{"name": "one", "containerEdits":
		{"env": ["CDI=yes"], "deviceNodes": [{"path": "/dev/of-cdi", "hostPath": "/dev/zero"}]}}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	library := m.dir + "/library"
	if err := os.MkdirAll(library, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(library+"/file", []byte("library\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	plugin := func() *fakeplugin.Devices {
		f := fakeplugin.NewDevices(t, m.dir+"/kubelet/device-plugins", resource, "one")
		f.Library = library
		wait.Until(t, func() error {
			_, err := os.Stat(filepath.Join(f.Dir, "kubelet.sock"))
			return err
		})
		f.Serve()
		if err := f.Register(); err != nil {
			t.Fatal(err)
		}
		return f
	}
	plugin()
	wait.Until(t, func() error {
		node, err := client.For(m.api, core.Nodes).Get(t.Context(), "", "n1")
		if err != nil {
			return err
		}
		if q := node.Status.Allocatable[resource]; q.Value() != 1 {
			return fmt.Errorf("the node has %s of it", q.String())
		}
		return nil
	})
	apitest.CreatePod(t, m.api, "device", `{terminationGracePeriodSeconds: 1, containers: [{name: c, image: `+busybox+`, command: [sh, -c, "trap 'exit 1' TERM; while true; do sleep 0.1; done"],
		resources: {limits: {`+resource+`: 1}}}]}`)
	m.ready("device")
	look := func() {
		t.Helper()
		got := m.exec("device", "sh", "-c", "echo $DEVICES $CDI; test -c /dev/one && echo x >/dev/one && head -c 3 /dev/of-cdi | od -An -tx1; cat /usr/lib/device/file")
		if want := "one yes\n 00 00 00\nlibrary\n"; got != want {
			t.Errorf("in the container: got %q, want %q", got, want)
		}
	}
	look()
	m.end()
	if err := os.Remove(m.dir + "/kubelet/device-plugins/test.kemudi.io_gpu.sock"); err != nil {
		t.Fatal(err)
	}
	m.start()
	again := plugin()
	p := apitest.GetPod(t, m.api, "device")
	id := strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://")
	if _, err := m.cri.Runtime.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"kill", "1"}}); err != nil {
		t.Fatal(err)
	}
	m.wait("device", "restarted", func(p *v1.Pod) bool {
		return p != nil && core.PodReady(p) && p.Status.ContainerStatuses[0].RestartCount == 1
	})
	look()
	if calls := again.Calls(); len(calls) > 0 {
		t.Errorf("the plugin was asked %q for a container that has its device", calls)
	}
	apitest.DeletePod(t, m.api, "device", 1)
	m.wait("device", "gone", func(p *v1.Pod) bool { return p == nil })
}
