package volume

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func volumeOf(t *testing.T, name, spec string) *v1.PersistentVolume {
	t.Helper()
	var v v1.PersistentVolume
	if err := yaml.UnmarshalStrict([]byte("metadata: {name: "+name+"}\nspec: {"+spec+"}"), &v); err != nil {
		t.Fatal(err)
	}
	return &v
}

const claimed = "volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]"

func TestPersistentVolumesAreLinkedAndOutliveThePod(t *testing.T) {
	m := newManager(t)
	dir := t.TempDir()
	for _, spec := range []string{"hostPath: {path: " + dir + "}", "local: {path: " + dir + "}", "csi: {driver: local.kemudi.io, volumeHandle: pvc-1}"} {
		pod := podOf(t, claimed)
		v := &pod.Spec.Volumes[0]
		prepare(t, m, pod, &sources{})
		if m.Placed(pod, v) {
			t.Errorf("%s: the pod has its volume before anybody gave it", spec)
		}
		for range 2 { // again, as after a restart
			if err := m.Place(pod, v, volumeOf(t, "pv", spec)); err != nil {
				t.Fatalf("%s: %v", spec, err)
			}
		}
		path := m.Path(pod, v)
		if !m.Placed(pod, v) || strings.Contains(path, string(pod.UID)) {
			t.Errorf("%s: got path %q, want one outside of the pod's directory", spec, path)
		}
		if err := os.WriteFile(filepath.Join(path, "data"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := m.CleanUp(pod.UID); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(path, "data")); err != nil {
			t.Errorf("%s: after the pod's end: %v", spec, err)
		}
		if m.Placed(pod, v) {
			t.Errorf("%s: the pod still has its volume after its end", spec)
		}
	}
	if err := m.Erase("pvc-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(m.root), "volumes", "pvc-1")); !os.IsNotExist(err) {
		t.Errorf("the node's own volume after it was erased: got %v, want nothing", err)
	}
	if err := m.Erase("pvc-1"); err != nil {
		t.Errorf("erase what is not there: %v", err)
	}
}

func TestPersistentVolumesThatCannotBeMountedSayWhy(t *testing.T) {
	m := newManager(t)
	dir := t.TempDir()
	for spec, want := range map[string]string{
		"local: {path: " + dir + "/none}":                       `MountVolume.SetUp failed for volume "pv" : path "` + dir + `/none" does not exist`,
		"hostPath: {path: " + dir + ", type: File}":             `MountVolume.SetUp failed for volume "pv" : hostPath type check failed: ` + dir + ` is not a file`,
		"hostPath: {path: " + dir + "}, volumeMode: Block":      `MountVolume.SetUp failed for volume "pv" : volumes of volumeMode Block are not supported by this node`,
		"nfs: {server: x, path: /x}":                            `MountVolume.SetUp failed for volume "pv" : volumes of this kind are not supported by this node`,
		"csi: {driver: csi.example.com, volumeHandle: x}":       `MountVolume.SetUp failed for volume "pv" : kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: driver name csi.example.com not found in the list of registered CSI drivers`,
		"csi: {driver: local.kemudi.io, volumeHandle: ../pods}": `MountVolume.SetUp failed for volume "pv" : bad volume handle "../pods"`,
		"csi: {driver: local.kemudi.io, volumeHandle: '..'}":    `MountVolume.SetUp failed for volume "pv" : bad volume handle ".."`,
	} {
		pod := podOf(t, claimed)
		err := m.Place(pod, &pod.Spec.Volumes[0], volumeOf(t, "pv", spec))
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", spec, err, want)
		}
		if m.Placed(pod, &pod.Spec.Volumes[0]) {
			t.Errorf("%s: the pod has the volume all the same", spec)
		}
	}
	for _, handle := range []string{"", ".", "..", "a/b", "../x"} {
		if err := m.Erase(handle); err == nil {
			t.Errorf("erase %q: done, want it refused", handle)
		}
	}
}

func TestPersistentVolumesAreGivenToTheGroupOfThePod(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	m := newManager(t)
	dir := t.TempDir()
	if err := os.MkdirAll(dir+"/sub", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/sub/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, dir+"/link"); err != nil {
		t.Fatal(err)
	}
	pod := podOf(t, claimed+"\nsecurityContext: {fsGroup: 4321}")
	if err := m.Place(pod, &pod.Spec.Volumes[0], volumeOf(t, "pv", "local: {path: "+dir+"}")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		gid  uint32
		mode fs.FileMode
	}{
		dir:               {4321, fs.ModeDir | fs.ModeSetgid | 0o775},
		dir + "/sub":      {4321, fs.ModeDir | fs.ModeSetgid | 0o770},
		dir + "/sub/file": {4321, 0o660},
		outside:           {0, 0o600},
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if gid := info.Sys().(*syscall.Stat_t).Gid; gid != want.gid || info.Mode()&^0o005 != want.mode&^0o005 {
			t.Errorf("%s: got group %d, mode %v, want %d, %v", path, gid, info.Mode(), want.gid, want.mode)
		}
	}
}
