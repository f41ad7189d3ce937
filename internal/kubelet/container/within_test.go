package container

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The runtime makes a place for what is mounted within a volume that containers may write to.
func TestMountsWithinWrittenVolumesHaveAPlace(t *testing.T) {
	dir := t.TempDir()
	config, data, secret, file := filepath.Join(dir, "config"), filepath.Join(dir, "data"), filepath.Join(dir, "secret"), filepath.Join(dir, "file")
	for _, d := range []string{config, data, secret} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		os.WriteFile(file, []byte("x"), 0o644), os.Symlink("..data/key", filepath.Join(config, "key")), os.Symlink(dir, filepath.Join(config, "out")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	c := &Container{
		Pod: &v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{
			{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}},
			{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
			{Name: "secret", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}},
		}}},
		Spec: &v1.Container{VolumeMounts: []v1.VolumeMount{
			{Name: "data", MountPath: "/etc/app/data/"}, {Name: "config", MountPath: "/etc/app"}, {Name: "secret", MountPath: "/etc/app/tls/ca"},
		}},
	}
	list := []*runtimeapi.Mount{
		{ContainerPath: "/etc/app/data/", HostPath: data}, {ContainerPath: "/etc/app", HostPath: config}, {ContainerPath: "/etc/app/tls/ca", HostPath: secret},
		{ContainerPath: "/etc/app/extra/one.conf", HostPath: file}, {ContainerPath: "/etc/app/two.conf", HostPath: file}, {ContainerPath: "/etc/app/key", HostPath: file},
		{ContainerPath: "/etc/app/tls/ca/deep", HostPath: data}, {ContainerPath: "/etc/app/data/mine", HostPath: secret},
		{ContainerPath: "/etc/application", HostPath: data}, {ContainerPath: "/etc/hosts", HostPath: file},
	}
	for range 2 { // a container that is started again finds them
		if err := c.placeWithin(list); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"config/data": "dir", "config/tls/ca": "dir", "config/extra/one.conf": "file", "config/two.conf": "file", "secret/deep": "dir",
		"config/key": "link", "config/tls/ca/deep": "", "data/mine": "", "config/hosts": "",
	} {
		got := ""
		if info, err := os.Lstat(filepath.Join(dir, path)); err == nil {
			got = map[os.FileMode]string{os.ModeDir: "dir", os.ModeSymlink: "link", 0: "file"}[info.Mode().Type()]
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	if err := c.placeWithin(append(list, &runtimeapi.Mount{ContainerPath: "/etc/app/out/there", HostPath: data})); err == nil {
		t.Error("a place was made outside of the volume")
	}
}
