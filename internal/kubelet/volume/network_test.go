package volume

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/kubelet/san"
	"github.com/kemudi/kemudi/internal/trace"
)

const iqn = "iqn.2001-04.com.example:disks"

// network is a manager on a machine with disks of a network, where programs stand in for the machine's and note what they are told.
type network struct {
	*testing.T
	*Manager
	bin string
}

func newNetwork(t *testing.T) *network {
	n := &network{t, newManager(t), t.TempDir()}
	real := t.TempDir()
	told := "#!/bin/sh\necho \"${0##*/} $*\" >> " + n.bin + "/told\n"
	for name, then := range map[string]string{
		"iscsiadm": "case \"$*\" in *node.session.scan*) exit 7;; *--logout) ls " + n.bin + "/held 2>/dev/null && exit 9;; esac\nexit 0\n",
		"blkid":    "echo TYPE=ext4\n", "blockdev": "",
		"mount": "for at; do :; done\nexec " + realMount(t) + " --bind " + real + " \"$at\"\n",
	} {
		if err := os.WriteFile(filepath.Join(n.bin, name), []byte(told+then), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", n.bin+":"+os.Getenv("PATH"))
	n.san = san.Machine{Root: t.TempDir()}
	if err := os.MkdirAll(n.san.Root+"/dev/disk/by-path", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, link := range map[string]string{
		"sda": "ip-10.0.0.2:3260-iscsi-" + iqn + "-lun-0", "sdb": "ip-10.0.0.2:3260-iscsi-" + iqn + "-lun-1", "sdc": "pci-0-fc-0xa1-lun-0",
	} {
		err := unix.Mknod(filepath.Join(n.san.Root, "dev", name), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0)))
		if err := errors.Join(err, os.Symlink("../../"+name, filepath.Join(n.san.Root, "dev/disk/by-path", link))); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := unmountBelow(n.sharedAt()); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *network) told() (lines []string) {
	n.Helper()
	data, err := os.ReadFile(filepath.Join(n.bin, "told"))
	if err != nil {
		return nil
	}
	if err := os.Remove(filepath.Join(n.bin, "told")); err != nil {
		n.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(strings.ReplaceAll(string(data), n.san.Root, "")), "\n")
}

// want checks that the programs were told lines that begin so, in this order, and what they are besides.
func (n *network) want(lines ...string) {
	n.Helper()
	got := n.told()
	if !slices.EqualFunc(got, lines, strings.HasPrefix) {
		n.Errorf("the programs were told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
}

func (n *network) give(pod *v1.Pod, pv *v1.PersistentVolume) {
	n.Helper()
	src := &sources{secrets: map[string]*v1.Secret{"chap": {Data: map[string][]byte{"node.session.auth.username": []byte("me")}}}}
	if err := n.Place(n.Context(), src, pod, &pod.Spec.Volumes[0], pv); err != nil {
		n.Fatal(err)
	}
	if !n.Placed(pod, &pod.Spec.Volumes[0]) {
		n.Errorf("pod %s has nothing at %s", pod.UID, n.Path(pod, &pod.Spec.Volumes[0]))
	}
}

func (n *network) end(pod *v1.Pod) {
	n.Helper()
	if err := n.CleanUp(n.Context(), pod.UID); err != nil {
		n.Fatal(err)
	}
}

// TestDisksOfANetworkAreAttachedOnceAndMountedOnce for two pods, of which the second ends under another agent.
func TestDisksOfANetworkAreAttachedOnceAndMountedOnce(t *testing.T) {
	n := newNetwork(t)
	pv := volumeOf(t, "pv", "iscsi: {targetPortal: 10.0.0.2, iqn: '"+iqn+"', lun: 0, fsType: xfs, chapAuthSession: true, secretRef: {name: chap}}, mountOptions: [noatime]")
	one, two := podOf(t, claimed), podOf(t, claimed)
	two.UID = "uid-2"
	at := n.sharedAt("iscsi/iface-default/10.0.0.2:3260-" + iqn + "-lun-0")
	device := "/dev/disk/by-path/ip-10.0.0.2:3260-iscsi-" + iqn + "-lun-0"
	n.give(one, pv)
	if got := n.Path(one, &one.Spec.Volumes[0]); got != at || !n.OnDisk(at) {
		t.Errorf("got path %s, want %s", got, at)
	}
	db, node := "iscsiadm -m discoverydb -t sendtargets -p 10.0.0.2:3260 -I default ", "iscsiadm -m node -p 10.0.0.2:3260 -T "+iqn+" -I default "
	n.want(db+"-o new", db+"--discover", node+"-o update -n node.session.auth.authmethod", node+"-o update -n node.session.auth.username -v me",
		node+"-o update -n node.session.scan", node+"--login", node+"-o update -n node.startup", "blkid", "mount -t xfs -o noatime "+device+" "+at)
	n.give(two, pv)
	n.want()
	n.end(one)
	n.want()

	if err := unmountBelow(at); err != nil { // as by a reboot
		t.Fatal(err)
	}
	if n.Placed(two, &two.Spec.Volumes[0]) {
		t.Error("what is not mounted any more counts as there")
	}
	n.give(two, pv)
	n.told()
	again, err := NewManager(n.root, n.node, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	again.san, n.Manager = n.san, again
	held := filepath.Join(n.bin, "held")
	if err := os.WriteFile(held, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.CleanUp(t.Context(), two.UID); err == nil || !strings.Contains(err.Error(), "failed to detach disk: iscsiadm: exit status 9") {
		t.Errorf("a disk that cannot be detached: got %v", err)
	}
	if err := os.Remove(held); err != nil {
		t.Fatal(err)
	}
	n.told()
	n.end(two)
	n.want("blockdev --flushbufs "+device, node+"--logout", node+"-o delete")
	for _, path := range []string{at, at + ".json"} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("in the end, %s: %v", path, err)
		}
	}
}

// TestBareDisksOfANetworkAreLinked beside a mounted one of the same target, which keeps the session.
func TestBareDisksOfANetworkAreLinked(t *testing.T) {
	n := newNetwork(t)
	bare, other := podOf(t, claimed), podOf(t, "volumes: [{name: v, iscsi: {targetPortal: 10.0.0.2, iqn: '"+iqn+"', lun: 0, readOnly: true}}]")
	other.UID = "uid-2"
	n.give(bare, volumeOf(t, "pv", "iscsi: {targetPortal: 10.0.0.2, iqn: '"+iqn+"', lun: 1}, volumeMode: Block"))
	path := n.Path(bare, &bare.Spec.Volumes[0])
	if got, err := filepath.EvalSymlinks(path); err != nil || got != n.san.Root+"/dev/sdb" || n.OnDisk(path) {
		t.Errorf("%s: got device %s, %v", path, got, err)
	}
	inline := Inline(&other.Spec.Volumes[0], "default")
	if inline == nil || !ReadOnly(&other.Spec.Volumes[0]) || Plugin(&other.Spec.Volumes[0]) != "kubernetes.io/iscsi" {
		t.Fatalf("got %+v of a disk that stands in the pod", inline)
	}
	prepare(t, n.Manager, other, &sources{})
	n.told()
	n.give(other, inline)
	if told := n.told(); !slices.ContainsFunc(told, func(line string) bool { return strings.HasPrefix(line, "mount -t ext4 -o ro /dev/disk/by-path/") }) ||
		slices.ContainsFunc(told, func(line string) bool { return strings.HasPrefix(line, "blkid") }) {
		t.Errorf("for a disk to be read: told %q", told)
	}
	n.end(bare)
	n.want("blockdev --flushbufs")
	n.end(other)
	n.want("blockdev --flushbufs", "iscsiadm -m node -p 10.0.0.2:3260 -T "+iqn+" -I default --logout", "iscsiadm -m node -p 10.0.0.2:3260 -T "+iqn+" -I default -o delete")
}

// TestDisksOfANetworkGoWithTheirAgent: of three, two of one target.
func TestDisksOfANetworkGoWithTheirAgent(t *testing.T) {
	n := newNetwork(t)
	for spec, uid := range map[string]types.UID{
		"iscsi: {targetPortal: 10.0.0.2, iqn: '" + iqn + "', lun: 0}":                    "uid-1",
		"iscsi: {targetPortal: 10.0.0.2, iqn: '" + iqn + "', lun: 1}, volumeMode: Block": "uid-2",
		"fc: {targetWWNs: [a1], lun: 0}":                                                 "uid-3",
	} {
		pod := podOf(t, claimed)
		pod.UID = uid
		n.give(pod, volumeOf(t, "pv", spec))
	}
	root := filepath.Dir(n.root)
	for _, disks := range []int{3, 0} {
		n.told()
		if err := unmountBelow(root); err != nil {
			t.Fatal(err)
		}
		removed, err := detachAll(t.Context(), root, n.san)
		if err != nil || len(removed) != disks {
			t.Errorf("got %q removed, %v, want %d disks", removed, err, disks)
		}
		if told := strings.Join(n.told(), "\n"); strings.Contains(told, "--logout") != (disks > 0) {
			t.Errorf("told %s", told)
		}
	}
}

func TestDisksOfANetworkThatCannotBeHadSayWhy(t *testing.T) {
	n := newNetwork(t)
	pod := podOf(t, claimed)
	for _, c := range []struct{ spec, want string }{
		{"iscsi: {targetPortal: 10.0.0.2, iqn: '" + iqn + "', lun: 0, chapAuthSession: true, secretRef: {name: none, namespace: other}}",
			`MountVolume.WaitForAttach failed for volume "pv" : failed to get secret from ["other"/"none"]: secret "none" not found`},
		{"iscsi: {targetPortal: 10.0.0.2, iqn: '" + iqn + "', lun: 0, chapAuthSession: true, secretRef: {name: none}}, volumeMode: Block",
			`MapVolume.WaitForAttach failed for volume "pv" : failed to get secret from ["default"/"none"]: secret "none" not found`},
	} {
		err := n.Place(t.Context(), &sources{}, pod, &pod.Spec.Volumes[0], volumeOf(t, "pv", c.spec))
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v, want %s", c.spec, err, c.want)
		}
		n.end(pod)
	}
	n.want()

	trace.Proves(t, "FC-001")
	fc := volumeOf(t, "pv", "fc: {targetWWNs: [a1], lun: 0}")
	n.give(pod, fc)
	at := n.Path(pod, &pod.Spec.Volumes[0])
	if err := os.WriteFile(at+".json", []byte(`{"fc":{}}`), 0o600); err != nil { // somebody has spoilt it
		t.Fatal(err)
	}
	if err := n.CleanUp(t.Context(), pod.UID); err == nil || !strings.HasSuffix(err.Error(), "read which disk is attached: it names no disk") {
		t.Errorf("what is attached cannot be read: got %v", err)
	}
	if mounted, err := IsMounted(at); err != nil || !mounted {
		t.Errorf("then the disk: got mounted %v, %v", mounted, err)
	}
}
