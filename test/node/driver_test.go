package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/apitest"
	"github.com/kemudi/kemudi/internal/kubelet/fakecsi"
	"github.com/kemudi/kemudi/internal/resource"
)

// e2eDriver has pods use volumes of a CSI driver: one of two pods, a device, and one that stands in a pod; and has a container mount
// what another pod sees, as drivers do.
func e2eDriver(t *testing.T, m *machine) {
	root := m.dir + "/kubelet"
	d := fakecsi.New(t, fakecsi.Options{
		Name: "disk.example.com", Registry: filepath.Join(root, "plugins_registry"),
		Can: []csipb.NodeServiceCapability_RPC_Type{csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME},
	})
	d.Serve(t)
	made(m, storage.CSIDrivers, &storagev1.CSIDriver{}, "metadata: {name: disk.example.com}\nspec: {attachRequired: false, fsGroupPolicy: File, volumeLifecycleModes: [Persistent, Ephemeral]}")
	for name, mode := range map[string]string{"files": "Filesystem", "device": "Block"} {
		m.claimed(name, mode)
	}
	pod := func(name, mounts string) {
		apitest.CreatePod(t, m.api, name, `{terminationGracePeriodSeconds: 1, securityContext: {fsGroup: 4321},
			volumes: [{name: files, persistentVolumeClaim: {claimName: files}}, {name: device, persistentVolumeClaim: {claimName: device}}, {name: own, csi: {driver: disk.example.com}}],
			containers: [{name: c, image: `+busybox+`, command: [sh, -c, "trap exit TERM; sleep 4321 & wait"], `+mounts+`}]}`)
	}
	pod("disk-1", "volumeMounts: [{name: files, mountPath: /files}, {name: own, mountPath: /own}], volumeDevices: [{name: device, devicePath: /dev/xvda}]")
	pod("disk-2", "volumeMounts: [{name: files, mountPath: /files}, {name: files, mountPath: /part, subPath: some/part}, {name: own, mountPath: /own}], volumeDevices: [{name: device, devicePath: /dev/xvda}]")
	one := m.ready("disk-1")
	m.ready("disk-2")
	if got := m.exec("disk-1", "sh", "-c", "echo text >/files/file; echo mine >/own/file; stat -c '%F %t:%T' /dev/xvda; stat -c %g /files"); got != "block special file 7:0\n4321\n" {
		t.Errorf("in the first pod: got %q", got)
	}
	if got := m.exec("disk-2", "sh", "-c", "echo part >/part/file; cat /files/file /files/some/part/file"); got != "text\npart\n" {
		t.Errorf("in the second pod: got %q", got)
	}
	if got := readFile(d.Content("vol-files") + "/file"); got != "text" {
		t.Errorf("the driver's volume has %q", got)
	}
	m.propagates(root, one)
	d.TakeCalls()
	m.end() // the agent's end leaves all as it is
	m.start()
	if got := m.exec("disk-2", "cat", "/files/file"); got != "text\n" {
		t.Errorf("after another agent's start: got %q", got)
	}
	for _, name := range []string{"disk-1", "disk-2"} {
		apitest.DeletePod(t, m.api, name, 1)
	}
	var calls []string
	m.eventually("the end of all volumes", func() bool {
		calls = append(calls, d.TakeCalls()...)
		return len(calls) == 8
	})
	slices.Sort(calls)
	if got := strings.Join(calls, ", "); strings.Count(got, "Unpublish csi-") != 2 ||
		!strings.HasSuffix(got, ", Unpublish vol-device, Unpublish vol-device, Unpublish vol-files, Unpublish vol-files, Unstage vol-device, Unstage vol-files") {
		t.Errorf("got calls %q", calls)
	}
	for _, name := range []string{"disk-1", "disk-2"} {
		m.wait(name, "gone", func(p *v1.Pod) bool { return p == nil })
	}
}

// propagates checks that what a container mounts below the root directory, as the container of a driver, is there for the
// machine.
func (m *machine) propagates(root string, pod *v1.Pod) {
	m.Helper()
	at := filepath.Join(root, "plugins", "mounted")
	if err := os.Mkdir(at, 0o755); err != nil {
		m.Fatal(err)
	}
	apitest.CreatePod(m.T, m.api, "mounter", `{terminationGracePeriodSeconds: 1, volumes: [{name: root, hostPath: {path: `+root+`}}],
		containers: [{name: c, image: `+busybox+`, command: [sh, -c, "mount -t tmpfs none /root/plugins/mounted && touch /root/plugins/mounted/file; trap 'umount /root/plugins/mounted; exit' TERM; sleep 4321 & wait"],
			securityContext: {privileged: true}, volumeMounts: [{name: root, mountPath: /root, mountPropagation: Bidirectional}]}]}`)
	m.ready("mounter")
	m.eventually("what a container has mounted", func() bool {
		_, err := os.Stat(filepath.Join(at, "file"))
		return err == nil
	})
	apitest.DeletePod(m.T, m.api, "mounter", 2)
	m.wait("mounter", "gone", func(p *v1.Pod) bool { return p == nil })
	if err := os.Remove(at); err != nil {
		m.Error(err)
	}
}

// claimed makes a volume of a mode and its claim, bound to each other.
func (m *machine) claimed(name, mode string) {
	m.Helper()
	const with = "spec: {accessModes: [ReadWriteOnce], volumeMode: "
	claim := made(m, core.PersistentVolumeClaims, &v1.PersistentVolumeClaim{}, "metadata: {namespace: default, name: "+name+"}\n"+with+mode+
		", volumeName: pv-"+name+", storageClassName: '', resources: {requests: {storage: 1Gi}}}")
	made(m, core.PersistentVolumes, &v1.PersistentVolume{}, fmt.Sprintf("metadata: {name: pv-%[1]s}\n"+with+"%[2]s, capacity: {storage: 1Gi}, csi: {driver: disk.example.com, volumeHandle: vol-%[1]s}, claimRef: {namespace: default, name: %[1]s, uid: %[3]s}}",
		name, mode, claim.UID))
	claim = claim.DeepCopy()
	claim.Status.Phase = v1.ClaimBound
	if _, err := client.For(m.api, core.PersistentVolumeClaims).UpdateStatus(m.Context(), claim); err != nil {
		m.Fatal(err)
	}
}

// made makes an object of the API from YAML.
func made[T resource.Object](m *machine, r *resource.Resource[T], obj T, text string) T {
	m.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		m.Fatal(err)
	}
	got, err := client.For(m.api, r).Create(m.Context(), obj)
	if err != nil {
		m.Fatal(err)
	}
	return got
}
