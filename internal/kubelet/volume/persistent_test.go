package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	for spec, plugin := range map[string]string{ // as far as its place tells it
		"hostPath: {path: " + dir + "}": "", "local: {path: " + dir + "}": "", "csi: {driver: local.kemudi.io, volumeHandle: pvc-1}": "kubernetes.io/csi:local.kemudi.io",
	} {
		pod := podOf(t, claimed)
		v := &pod.Spec.Volumes[0]
		prepare(t, m, pod, &sources{})
		if m.Placed(pod, v) {
			t.Errorf("%s: the pod has its volume before anybody gave it", spec)
		}
		for range 2 { // again, as after a restart
			if err := m.Place(t.Context(), &sources{}, pod, v, volumeOf(t, "pv", spec)); err != nil {
				t.Fatalf("%s: %v", spec, err)
			}
		}
		path := m.Path(pod, v)
		if !m.Placed(pod, v) || strings.Contains(path, string(pod.UID)) {
			t.Errorf("%s: got path %q, want one outside of the pod's directory", spec, path)
		}
		if got := m.PluginAt(pod.UID, path); got != plugin {
			t.Errorf("%s: got plugin %q, want %q", spec, got, plugin)
		}
		if err := os.WriteFile(filepath.Join(path, "data"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := m.CleanUp(t.Context(), pod.UID); err != nil {
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
		"local: {path: " + dir + "/none}":                       `MountVolume.NewMounter initialization failed for volume "pv" : path "` + dir + `/none" does not exist`,
		"hostPath: {path: " + dir + ", type: File}":             `MountVolume.SetUp failed for volume "pv" : hostPath type check failed: ` + dir + ` is not a file`,
		"hostPath: {path: " + dir + "}, volumeMode: Block":      `MapVolume.MapPodDevice failed for volume "pv" : volumes of volumeMode Block are not supported by this node`,
		"local: {path: " + dir + "}, volumeMode: Block":         `MapVolume.MapPodDevice failed for volume "pv" : ` + dir + ` is not a block device`,
		"local: {path: " + dir + "/none}, volumeMode: Block":    `MapVolume.MapPodDevice failed for volume "pv" : path "` + dir + `/none" does not exist`,
		"rbd: {image: x, monitors: [a]}":                        `MountVolume.SetUp failed for volume "pv" : volumes of this kind are not supported by this node`,
		"csi: {driver: local.kemudi.io, volumeHandle: ../pods}": `MountVolume.SetUp failed for volume "pv" : bad volume handle "../pods"`,
		"csi: {driver: local.kemudi.io, volumeHandle: '..'}":    `MountVolume.SetUp failed for volume "pv" : bad volume handle ".."`,
	} {
		pod := podOf(t, claimed)
		err := m.Place(t.Context(), &sources{}, pod, &pod.Spec.Volumes[0], volumeOf(t, "pv", spec))
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
	if err := m.Place(t.Context(), &sources{}, pod, &pod.Spec.Volumes[0], volumeOf(t, "pv", "local: {path: "+dir+"}")); err != nil {
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

// TestWhatIsInAVolumeIsGivenToTheGroupAgain unless the pod says that a look at the root is enough.
func TestWhatIsInAVolumeIsGivenToTheGroupAgain(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	m, dir := newManager(t), t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, tc := range []struct {
		policy string
		root   fs.FileMode // before that
		gid    uint32
	}{
		{"", 0o755, 4321},
		{"", fs.ModeSetgid | 0o775, 4321},
		{"Always", fs.ModeSetgid | 0o775, 4321},
		{"OnRootMismatch", fs.ModeSetgid | 0o775, 7},
		{"OnRootMismatch", 0o775, 4321},
		{"OnRootMismatch", fs.ModeSetgid | 0o755, 4321},
	} {
		if err := errors.Join(os.Chown(dir, 0, 4321), os.Chmod(dir, tc.root), os.Chown(file, 0, 7)); err != nil {
			t.Fatal(err)
		}
		group := "fsGroup: 4321"
		if tc.policy != "" {
			group += ", fsGroupChangePolicy: " + tc.policy
		}
		pod := podOf(t, claimed+"\nsecurityContext: {"+group+"}")
		pod.UID += types.UID(fmt.Sprint(i))
		if err := m.Place(t.Context(), &sources{}, pod, &pod.Spec.Volumes[0], volumeOf(t, "pv", "local: {path: "+link+"}")); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Sys().(*syscall.Stat_t).Gid; got != tc.gid {
			t.Errorf("%+v: got group %d", tc, got)
		}
		if err := m.CleanUp(t.Context(), pod.UID); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFilesKeepTheirBitsWhenTheyAreGivenToTheGroup(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	program, shared, link := filepath.Join(dir, "program"), filepath.Join(dir, "shared"), filepath.Join(dir, "link")
	err := errors.Join(os.WriteFile(program, nil, 0o600), os.Chmod(program, fs.ModeSetuid|0o711), os.Mkdir(shared, 0o700), os.Chmod(shared, fs.ModeSticky|0o700), os.Symlink("nowhere", link))
	if err != nil {
		t.Fatal(err)
	}
	group := int64(4321)
	g := Giving{Pod: podOf(t, claimed), Tell: &sources{}, Log: slog.New(slog.DiscardHandler)}
	if err := g.Give(dir, &group); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{
		program: fs.ModeSetuid | 0o771,
		shared:  fs.ModeDir | fs.ModeSticky | fs.ModeSetgid | 0o770,
		link:    fs.ModeSymlink | 0o777,
	} {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want || groupIn(info) != group {
			t.Errorf("%s: got mode %v, group %d, want %v, %d", path, info.Mode(), groupIn(info), want, group)
		}
	}
}

// TestVolumeWhoseFilesCannotBeGivenIsMountedNevertheless, as of a file system without groups.
func TestVolumeWhoseFilesCannotBeGivenIsMountedNevertheless(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	m, dir := newManager(t), t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(os.WriteFile(dir+"/file", nil, 0o600), unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	m.log = slog.New(slog.NewTextHandler(&log, nil))
	pod := podOf(t, claimed+"\nsecurityContext: {fsGroup: 4321}")
	if err := m.Place(t.Context(), &sources{}, pod, &pod.Spec.Volumes[0], volumeOf(t, "pv", "local: {path: "+dir+"}")); err != nil {
		t.Fatal(err)
	}
	if want := "left=2 "; !m.Placed(pod, &pod.Spec.Volumes[0]) || !strings.Contains(log.String(), want) {
		t.Errorf("the log does not say %s:\n%s", want, &log)
	}
}

func TestPodsAreToldWhenItTakesLongToGiveThemAVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, pod := &sources{}, podOf(t, claimed)
		g := Giving{Pod: pod, Tell: src}
		var files atomic.Int64
		stop := g.report("/var/lib/kubelet/pods/"+string(pod.UID)+"/volumes/kubernetes.io~csi/pv/mount", &files)
		time.Sleep(31 * time.Second)
		files.Store(1234)
		time.Sleep(2 * time.Minute)
		stop()
		time.Sleep(time.Hour)
		const reason = "VolumePermissionChangeInProgress: Setting volume ownership for "
		at := reason + string(pod.UID) + "/volumes/kubernetes.io~csi/pv/mount"
		want := []string{
			at + " is taking longer than expected, consider using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods",
			at + ", processed 1234 files.", at + ", processed 1234 files.",
		}
		if !slices.Equal(src.warnings, want) {
			t.Errorf("got %q, want %q", src.warnings, want)
		}
		g.report("/data", &files)()
		time.Sleep(time.Hour)
		if len(src.warnings) != len(want) {
			t.Errorf("of what did not take long: got %q", src.warnings[len(want):])
		}
	})
}

func TestPodsThatShareALocalVolumeAreToldOfAnotherGroup(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	m, dir := newManager(t), t.TempDir()
	pv := volumeOf(t, "pv", "local: {path: "+dir+"}")
	for i, tc := range []struct{ group, want string }{
		{"securityContext: {fsGroup: 1000}", ""},
		{"securityContext: {fsGroup: 1000}", ""},
		{"securityContext: {fsGroup: 2000}", "AlreadyMountedVolume: The requested fsGroup is 2000, but the volume pv has GID 1000. The volume may not be shareable."},
		{"", ""},
	} {
		pod := podOf(t, claimed+"\n"+tc.group)
		pod.UID = types.UID(fmt.Sprint("uid-", i))
		src := &sources{}
		if err := m.Place(t.Context(), src, pod, &pod.Spec.Volumes[0], pv); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(src.warnings, "\n"); got != tc.want {
			t.Errorf("%q: got %q, want %q", tc.group, got, tc.want)
		}
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if gid := groupIn(info); gid != 1000 {
			t.Errorf("%q: the volume belongs to group %d, want that of the first pod", tc.group, gid)
		}
	}
}

func TestVolumeForOnePodIsRefusedToOthers(t *testing.T) {
	m := newManager(t)
	one, two := podOf(t, claimed), podOf(t, claimed)
	two.UID = "uid-2"
	pv := volumeOf(t, "pv", "csi: {driver: local.kemudi.io, volumeHandle: pvc-1}, accessModes: [ReadWriteOncePod]")
	if err := m.Place(t.Context(), &sources{}, one, &one.Spec.Volumes[0], pv); err != nil {
		t.Fatal(err)
	}
	const want = `MountVolume.SetUp failed for volume "pv" : volume uses the ReadWriteOncePod access mode and is already in use by another pod`
	if err := m.Place(t.Context(), &sources{}, two, &two.Spec.Volumes[0], pv); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := m.CleanUp(t.Context(), one.UID); err != nil {
		t.Fatal(err)
	}
	if err := m.Place(t.Context(), &sources{}, two, &two.Spec.Volumes[0], pv); err != nil {
		t.Errorf("after the first pod: %v", err)
	}
}

func TestVolumesAreCheckedBeforeAPodGetsThem(t *testing.T) {
	const here = "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [z]}]}]}}"
	asDevice := "containers: [{name: c, volumeDevices: [{name: v, devicePath: /d}]}]\n" + claimed
	for _, tc := range []struct{ pod, volume, zone, want string }{
		{claimed, here, "z", ""},
		{claimed, here, "y", `MountVolume.NodeAffinity check failed for volume "pv" : no matching NodeSelectorTerms`},
		{asDevice, "volumeMode: Block, " + here, "y", `MapVolume.NodeAffinity check failed for volume "pv" : no matching NodeSelectorTerms`},
		{asDevice, "volumeMode: Block", "y", ""},
		{claimed, "volumeMode: Block", "z", "volume v has volumeMode Block, but is specified in volumeMounts"},
		{asDevice, "volumeMode: Filesystem", "z", "volume v has volumeMode Filesystem, but is specified in volumeDevices"},
	} {
		pod := podOf(t, tc.pod)
		if len(pod.Spec.Containers[0].VolumeDevices) > 0 {
			pod.Spec.Containers[0].VolumeMounts = nil
		}
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"zone": tc.zone}}}
		err := Check(pod, &pod.Spec.Volumes[0], volumeOf(t, "pv", tc.volume), node)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.HasSuffix(err.Error(), tc.want)) {
			t.Errorf("%+v: got %v", tc, err)
		}
	}
}

// TestLocalDevicesWithAFileSystemAreMountedOnce where programs stand in for those that look at devices, format and mount them.
func TestLocalDevicesWithAFileSystemAreMountedOnce(t *testing.T) {
	m, bin, real := newManager(t), t.TempDir(), t.TempDir()
	told := "#!/bin/sh\necho \"${0##*/} $*\" >> " + bin + "/told\n"
	for name, then := range map[string]string{
		"blkid": "cat " + bin + "/found 2>&1 || exit 2\n", "mkfs.ext4": "echo TYPE=ext4 > " + bin + "/found\n",
		"resize2fs": "", "xfs_growfs": "", "btrfs": "",
		"mount": "for at; do :; done\nexec " + realMount(t) + " --bind " + real + " \"$at\"\n",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(told+then), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	device := filepath.Join(t.TempDir(), "sdb")
	if err := unix.Mknod(device, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0))); err != nil {
		t.Fatal(err)
	}
	pv := volumeOf(t, "pv", "local: {path: "+device+"}, mountOptions: [noatime]")
	one, two := podOf(t, claimed), podOf(t, claimed)
	two.UID = "uid-2"
	at := filepath.Join(filepath.Dir(m.root), "plugins/kubernetes.io/local-volume/mounts/pv")
	t.Cleanup(func() {
		if err := unmountBelow(at); err != nil {
			t.Error(err)
		}
	})
	mounted := func(want bool) {
		t.Helper()
		if got, err := IsMounted(at); err != nil || got != want {
			t.Errorf("mounted: got %v, %v, want %v", got, err, want)
		}
	}
	for _, pod := range []*v1.Pod{one, two, one} {
		if err := m.Place(t.Context(), &sources{}, pod, &pod.Spec.Volumes[0], pv); err != nil {
			t.Fatal(err)
		}
		if got := m.Path(pod, &pod.Spec.Volumes[0]); got != at || !m.Placed(pod, &pod.Spec.Volumes[0]) {
			t.Errorf("pod %s: got path %s, want %s", pod.UID, got, at)
		}
	}
	mounted(true)
	grown := m.Grow(t.Context(), pv) // what stands in for the file system is of this machine's kind
	if grown != nil && !strings.HasPrefix(grown.Error(), "resize of format ") {
		t.Errorf("the file system is to fill its device: got %v", grown)
	}
	if err := m.CleanUp(t.Context(), one.UID); err != nil {
		t.Fatal(err)
	}
	mounted(true)
	if err := unmountBelow(at); err != nil { // as by a reboot
		t.Fatal(err)
	}
	if m.Placed(two, &two.Spec.Volumes[0]) {
		t.Error("what is not mounted any more counts as there")
	}
	if err := m.Place(t.Context(), &sources{}, two, &two.Spec.Volumes[0], pv); err != nil {
		t.Fatal(err)
	}
	if err := m.CleanUp(t.Context(), two.UID); err != nil {
		t.Fatal(err)
	}
	mounted(false)
	if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the mount point in the end: %v", err)
	}
	look := "blkid -p -s TYPE -s PTTYPE -o export " + device + "\n"
	mount := "mount -t ext4 -o noatime " + device + " " + at + "\n"
	want := regexp.QuoteMeta(look+"mkfs.ext4 -F -m0 "+device+"\n"+mount) + "(.*\n)?" + regexp.QuoteMeta(look+mount)
	got, err := os.ReadFile(filepath.Join(bin, "told"))
	if m := regexp.MustCompile("^" + want + "$").FindSubmatch(got); err != nil || m == nil || (len(m[1]) > 0) != (grown == nil) {
		t.Errorf("the programs were told %q, %v, want %q", got, err, want)
	}
}

// TestVolumeWithAnotherFileSystemIsToldApart where programs stand in for those that look at devices and mount them.
func TestVolumeWithAnotherFileSystemIsToldApart(t *testing.T) {
	m, bin := newManager(t), t.TempDir()
	device := filepath.Join(t.TempDir(), "sdb")
	if err := unix.Mknod(device, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0))); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for name, text := range map[string]string{"mount": "echo wrong fs type >&2; exit 32", "blkid": "echo \"$found\""} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	pod, pv := podOf(t, claimed), volumeOf(t, "pv", "local: {path: "+device+", fsType: xfs}")
	for found, want := range map[string]bool{"DEVNAME=/dev/sdb\nTYPE=ext4": true, "TYPE=xfs": false, "PTTYPE=gpt": false} {
		t.Setenv("found", found)
		err := m.Place(t.Context(), &sources{}, pod, &pod.Spec.Volumes[0], pv)
		var other *FormatError
		if err == nil || !strings.Contains(err.Error(), "wrong fs type") {
			t.Fatalf("%q: got %v, want that it cannot be mounted", found, err)
		}
		if got := errors.As(err, &other); got != want {
			t.Errorf("%q: got %v, want it told apart: %v", found, err, want)
		}
	}
}

func TestLocalDevicesAreLinked(t *testing.T) {
	m := newManager(t)
	device := filepath.Join(t.TempDir(), "sdb")
	if err := unix.Mknod(device, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0))); err != nil {
		t.Fatal(err)
	}
	pod := podOf(t, claimed)
	if err := m.Place(t.Context(), &sources{}, pod, &pod.Spec.Volumes[0], volumeOf(t, "pv", "local: {path: "+device+"}, volumeMode: Block")); err != nil {
		t.Fatal(err)
	}
	if got := m.Path(pod, &pod.Spec.Volumes[0]); got != device {
		t.Errorf("got %s, want %s", got, device)
	}
}

func TestMountsBelowASharedDirectoryAreSeen(t *testing.T) {
	dir := t.TempDir()
	shared := func() bool {
		t.Helper()
		at, err := mountOf(dir)
		if err != nil {
			t.Fatal(err)
		}
		return at != nil && strings.Contains(at.Optional, "shared:")
	}
	before := shared()
	for range 2 { // again, as after a restart
		if err := Share(dir); err != nil {
			t.Fatal(err)
		}
	}
	if !shared() {
		t.Error("it lies in no shared mount")
	}
	if err := Unshare(dir); err != nil {
		t.Fatal(err)
	}
	if after := shared(); after != before {
		t.Errorf("in the end: shared: got %v, want %v as before", after, before)
	}
	if before {
		return
	}
	if err := ensureTmpfs(filepath.Join(dir, "pod"), 0, nil); err != nil {
		t.Fatal(err)
	}
	defer unmountBelow(dir)
	if err := Share(dir); err == nil || !strings.Contains(err.Error(), "something is mounted at "+dir+"/pod") {
		t.Errorf("with what would be hidden: got %v", err)
	}
}

// TestExportsAreMountedByTheMachine in whose place a program stands that notes what it is told.
func TestExportsAreMountedByTheMachine(t *testing.T) {
	m, bin, real := newManager(t), t.TempDir(), t.TempDir()
	script := "#!/bin/sh\necho \"$*\" >> " + bin + "/told\ncase \"$*\" in *broken*) echo refused; exit 32;; esac\nfor at; do :; done\nexec " + realMount(t) + " --bind " + real + " \"$at\"\n"
	if err := os.WriteFile(filepath.Join(bin, "mount"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	pod := podOf(t, "volumes: [{name: v, persistentVolumeClaim: {claimName: data, readOnly: true}}, {name: w, nfs: {server: 'fd00::1', path: /w}}]")
	v := &pod.Spec.Volumes[0]
	pv := volumeOf(t, "pv", "nfs: {server: files, path: /v}, mountOptions: [hard, nfsvers=4.2]")
	for range 2 { // again, as after a restart
		prepare(t, m, pod, &sources{})
		if err := m.Place(t.Context(), &sources{}, pod, v, pv); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(real, "file"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range pod.Spec.Volumes {
		if got, err := os.ReadFile(filepath.Join(m.Path(pod, &pod.Spec.Volumes[i]), "file")); err != nil || string(got) != "text" {
			t.Errorf("volume %s: got %q, %v", pod.Spec.Volumes[i].Name, got, err)
		}
	}
	if got := m.PluginAt(pod.UID, m.Path(pod, v)); got != "kubernetes.io/nfs" {
		t.Errorf("got plugin %q", got)
	}
	at := filepath.Join(m.PodDir(pod.UID), "volumes/kubernetes.io~nfs")
	want := "-t nfs [fd00::1]:/w " + at + "/w\n-t nfs -o ro,hard,nfsvers=4.2 files:/v " + at + "/pv\n"
	if got, err := os.ReadFile(filepath.Join(bin, "told")); err != nil || string(got) != want {
		t.Errorf("the program was told %q, %v, want %q", got, err, want)
	}
	if err := unmountBelow(at); err != nil { // as by a reboot
		t.Fatal(err)
	}
	if m.Placed(pod, v) {
		t.Error("what is not mounted any more counts as there")
	}
	if err := m.Place(t.Context(), &sources{}, pod, v, pv); err != nil || !m.Placed(pod, v) {
		t.Errorf("after a reboot: got %v", err)
	}
	if err := m.CleanUp(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(real, "file")); err != nil {
		t.Errorf("what is in the export after the pod's end: %v", err)
	}
	pv.Spec.NFS.Path = "/broken"
	if err := m.Place(t.Context(), &sources{}, pod, v, pv); err == nil || !strings.HasPrefix(err.Error(), `MountVolume.SetUp failed for volume "pv" : mount failed: exit status 32`) || !strings.Contains(err.Error(), "Output: refused") {
		t.Errorf("an export that is refused: got %v", err)
	}
}

// realMount is the machine's mount program.
func realMount(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("mount")
	if err != nil {
		t.Skipf("needs the program mount: %v", err)
	}
	return path
}

func TestMountIsFoundBehindALink(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "real"), 0o755), os.Symlink("real", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, "link", "pod")
	if yes, err := IsMounted(at); yes || err != nil {
		t.Errorf("before: got %v, %v", yes, err)
	}
	if err := ensureTmpfs(at, 0, nil); err != nil {
		t.Fatal(err)
	}
	defer unmountBelow(filepath.Join(dir, "real"))
	if yes, err := IsMounted(at); !yes || err != nil {
		t.Errorf("after: got %v, %v", yes, err)
	}
	if yes, err := IsMounted(filepath.Join(dir, "none", "pod")); yes || err != nil {
		t.Errorf("where nothing is: got %v, %v", yes, err)
	}
}
