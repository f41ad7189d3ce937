package san

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/inotify"
	"github.com/kemudi/kemudi/internal/trace"
)

// bed is a machine's file system and programs, which note what they are told.
type bed struct {
	*testing.T
	m   Machine
	bin string
}

func newBed(t *testing.T, tools map[string]string) *bed {
	b := &bed{t, Machine{Root: t.TempDir()}, t.TempDir()}
	for name, then := range tools {
		b.write(filepath.Join(b.bin, name), "#!/bin/sh\necho \"${0##*/} $*\" >> "+b.bin+"/told\nROOT="+b.m.Root+" BIN="+b.bin+"\n"+then)
	}
	t.Setenv("PATH", b.bin+":"+os.Getenv("PATH"))
	b.write(b.m.path("dev/null"), "")
	return b
}

func (b *bed) write(file, text string) {
	b.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755)); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) read(file string) string {
	b.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	return string(data)
}

// told is what the programs were told since the last time.
func (b *bed) told() []string {
	b.Helper()
	file := filepath.Join(b.bin, "told")
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	if err := os.Remove(file); err != nil {
		b.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

// device has a disk appear under a name in /dev/disk.
func (b *bed) device(name, kernel string) {
	b.Helper()
	b.write(b.m.path("dev", kernel), "")
	b.write(b.m.path("sys/block", kernel, "device/delete"), "")
	link := b.m.path("dev/disk", name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink("../../"+kernel, link)); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) attach(d *Disk, secrets map[string]string) string {
	b.Helper()
	device, err := b.m.Attach(b.Context(), d, secrets)
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimPrefix(device, b.m.Root)
}

func diskOf(t *testing.T, spec string) *Disk {
	t.Helper()
	v := &v1.PersistentVolume{}
	if err := yaml.UnmarshalStrict([]byte("metadata: {name: pv}\nspec: {"+spec+"}"), v); err != nil {
		t.Fatal(err)
	}
	d := Of(v)
	if d == nil || !d.Valid() {
		t.Fatalf("got disk %+v of %s", d, spec)
	}
	return d
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// iscsiadm stands in for the program, and for the kernel: who logs in has a session on host 4, and the disks below it.
const iscsiadm = `
[ -e $BIN/old ] && case "$*" in *node.session.scan*) exit 7;; esac
case "$*" in
*"-I default -o show") printf '# BEGIN RECORD\niface.iscsi_ifacename = default\niface.net_ifacename = <empty>\niface.transport_name = tcp\niface.initiatorname = <empty>\n';;
*"-o show") exit 21;;
*10.0.0.9*--discover) echo "cannot connect"; exit 8;;
*--logout|*"-o delete") [ -e $BIN/gone ] && exit 21; exit 0;;
*10.0.0.8*--login) echo "no such user"; exit 24;;
*--login)
	p=$4; n=${p##*.}; n=${n%%:*}
	mkdir -p $ROOT/sys/devices/host$n/session$n $ROOT/sys/class/iscsi_session $ROOT/sys/class/iscsi_connection/connection$n:0 $ROOT/sys/class/scsi_host/host$n
	ln -s ../../devices/host$n/session$n $ROOT/sys/class/iscsi_session/session$n
	echo $6 > $ROOT/sys/class/iscsi_session/session$n/targetname
	echo $8 > $ROOT/sys/class/iscsi_session/session$n/ifacename
	echo ${p%:*} > $ROOT/sys/class/iscsi_connection/connection$n:0/persistent_address
	echo ${p##*:} > $ROOT/sys/class/iscsi_connection/connection$n:0/persistent_port
	: > $ROOT/sys/class/scsi_host/host$n/scan;;
esac
`

const iqn = "iqn.2001-04.com.example:disks"

func TestDisksOfATargetAreAttachedAndDetached(t *testing.T) {
	b := newBed(t, map[string]string{"iscsiadm": iscsiadm, "blockdev": ""})
	b.device("by-path/ip-10.0.0.2:3260-iscsi-"+iqn+"-lun-1", "sda")
	one, two := diskOf(t, "iscsi: {targetPortal: 10.0.0.2, iqn: '"+iqn+"', lun: 1}"), diskOf(t, "iscsi: {targetPortal: '10.0.0.2:3260', iqn: '"+iqn+"', lun: 12}")
	if got := b.attach(one, nil); got != "/dev/disk/by-path/ip-10.0.0.2:3260-iscsi-"+iqn+"-lun-1" {
		t.Errorf("got %s", got)
	}
	db, node := "iscsiadm -m discoverydb -t sendtargets -p 10.0.0.2:3260 -I default ", "iscsiadm -m node -p 10.0.0.2:3260 -T "+iqn+" -I default "
	equal(t, "the first disk", b.told(), []string{
		db + "-o new", db + "--discover", node + "-o update -n node.session.scan -v manual", node + "--login", node + "-o update -n node.startup -v manual",
	})
	scan := b.m.path("sys/class/scsi_host/host2/scan")
	if got := b.read(scan); got != "0 0 1" {
		t.Errorf("the host was told %q", got)
	}
	b.device("by-path/ip-10.0.0.2:3260-iscsi-"+iqn+"-lun-12", "sdb")
	b.attach(two, nil)
	equal(t, "the second one, by the session that is there", b.told(), nil)
	if got := b.read(scan); !strings.HasPrefix(got, "0 0 12") {
		t.Errorf("the host was told %q", got)
	}

	gone := func(d *Disk, others ...*Disk) {
		t.Helper()
		if err := b.m.Detach(t.Context(), d, others); err != nil {
			t.Error(err)
		}
	}
	path := func(lun string) string {
		return b.m.path("dev/disk/by-path/ip-10.0.0.2:3260-iscsi-" + iqn + "-lun-" + lun)
	}
	gone(one, one)
	equal(t, "a disk that is wanted elsewhere too", b.told(), nil)
	gone(one, two)
	equal(t, "a disk of a session that another needs", b.told(), []string{"blockdev --flushbufs " + path("1")})
	if a, b := b.read(b.m.path("sys/block/sda/device/delete")), b.read(b.m.path("sys/block/sdb/device/delete")); a != "1" || b != "" {
		t.Errorf("got %q and %q written to remove the disks, want the first alone removed", a, b)
	}
	gone(two)
	end := []string{node + "--logout", node + "-o delete"}
	equal(t, "the last disk", b.told(), append([]string{"blockdev --flushbufs " + path("12")}, end...))
	b.write(filepath.Join(b.bin, "gone"), "")
	if err := os.RemoveAll(b.m.path("dev/disk")); err != nil {
		t.Fatal(err)
	}
	gone(two)
	equal(t, "a disk that is not there any more", b.told(), end)
}

func TestTargetsAreShownSecretsAndComeToByAName(t *testing.T) {
	b := newBed(t, map[string]string{"iscsiadm": iscsiadm, "blockdev": ""})
	b.write(filepath.Join(b.bin, "old"), "") // the tools know of no single disks
	b.device("by-path/pci-0000:01:00.0-ip-10.0.0.3:3260-iscsi-"+iqn+"-lun-0", "sda")
	d := diskOf(t, "iscsi: {targetPortal: 10.0.0.3, iqn: '"+iqn+"', lun: 0, initiatorName: 'iqn.2001-04.com.example:me', chapAuthDiscovery: true, chapAuthSession: true}")
	b.attach(d, map[string]string{
		"discovery.sendtargets.auth.username": "a", "discovery.sendtargets.auth.password": "b", "node.session.auth.username": "c", "node.session.auth.password_in": "d", "else": "e",
	})
	iface := "iscsiadm -m iface -I 10.0.0.3:pv "
	db, node := "iscsiadm -m discoverydb -t sendtargets -p 10.0.0.3:3260 -I 10.0.0.3:pv ", "iscsiadm -m node -p 10.0.0.3:3260 -T "+iqn+" -I 10.0.0.3:pv "
	equal(t, "attached", b.told(), []string{
		"iscsiadm -m iface -I default -o show", iface + "-o show", iface + "-o new",
		iface + "-o update -n iface.initiatorname -v iqn.2001-04.com.example:me", iface + "-o update -n iface.transport_name -v tcp",
		db + "-o new", db + "-o update -n discovery.sendtargets.auth.authmethod -v CHAP", db + "-o update -n discovery.sendtargets.auth.username -v a",
		db + "-o update -n discovery.sendtargets.auth.password -v b", db + "--discover",
		node + "-o update -n node.session.auth.authmethod -v CHAP", node + "-o update -n node.session.auth.username -v c", node + "-o update -n node.session.auth.password_in -v d",
		node + "-o update -n node.session.scan -v manual", node + "--login", node + "-o update -n node.startup -v manual",
	})
	if got := b.read(b.m.path("sys/class/scsi_host/host3/scan")); got != "" {
		t.Errorf("the host, which looks by itself, was told %q", got)
	}
	if err := b.m.Detach(t.Context(), d, []*Disk{diskOf(t, "iscsi: {targetPortal: 10.0.0.3, iqn: '"+iqn+"', lun: 2}")}); err != nil {
		t.Error(err)
	}
	equal(t, "detached, while others have come by another name", b.told()[1:], []string{node + "--logout", node + "-o delete", iface + "-o delete"})
}

// TestOnePathOfSeveralIsEnough has a portal that is away, one that refuses, and two that are good, of which multipathd makes one.
func TestOnePathOfSeveralIsEnough(t *testing.T) {
	b := newBed(t, map[string]string{"iscsiadm": iscsiadm, "multipath": "", "blockdev": ""})
	b.device("by-path/ip-10.0.0.2:3260-iscsi-"+iqn+"-lun-0", "sda")
	b.device("by-path/ip-fd00::3:3260-iscsi-"+iqn+"-lun-0", "sdb")
	d := diskOf(t, "iscsi: {targetPortal: 10.0.0.9, portals: ['10.0.0.8:3260', 10.0.0.2, '10.0.0.2:3260', 'fd00::3'], iqn: '"+iqn+"', lun: 0}")
	equal(t, "portals", d.ISCSI.Portals, []string{"10.0.0.9:3260", "10.0.0.8:3260", "10.0.0.2:3260", "[fd00::3]:3260"})
	for _, dm := range []string{"dm-0", "dm-1"} {
		b.write(b.m.path("sys/block", dm, "dm/uuid"), map[string]string{"dm-0": "LVM-x", "dm-1": "mpath-y"}[dm])
		b.write(b.m.path("sys/block", dm, "slaves/sda"), "")
	}
	b.write(b.m.path("sys/class/iscsi_session/session3/targetname"), "") // not ours
	if got := b.attach(d, nil); got != "/dev/dm-1" {
		t.Errorf("got device %s, want the one that stands for all paths", got)
	}
	told := sets.New(b.told()...)
	for _, undone := range []string{"discoverydb -t sendtargets -p 10.0.0.9:3260 -I default -o delete", "node -p 10.0.0.8:3260 -T " + iqn + " -I default -o delete"} {
		if !told.Has("iscsiadm -m " + undone) {
			t.Errorf("was not told %s", undone)
		}
	}
	if err := b.m.Detach(t.Context(), d, nil); err != nil {
		t.Error(err)
	}
	if got := b.told()[0]; got != "multipath -f "+b.m.path("dev/dm-1") {
		t.Errorf("first of all was told %s", got)
	}
}

func TestTargetsThatCannotBeHadSayWhy(t *testing.T) {
	b := newBed(t, map[string]string{"iscsiadm": iscsiadm})
	const all = "failed to get any path for iscsi disk, last err seen:\n"
	for portal, want := range map[string]string{
		"10.0.0.9": all + "failed to sendtargets to portal 10.0.0.9:3260: iscsiadm: exit status 8\nOutput: cannot connect",
		"10.0.0.8": all + "failed to attach disk: iscsiadm: exit status 24\nOutput: no such user",
	} {
		_, err := b.m.Attach(t.Context(), diskOf(t, "iscsi: {targetPortal: "+portal+", iqn: '"+iqn+"', lun: 0, chapAuthSession: true}"),
			map[string]string{"node.session.auth.password": "secret"})
		if err == nil || strings.TrimSpace(err.Error()) != want || strings.Contains(err.Error(), "secret") {
			t.Errorf("portal %s: got %v, want %s", portal, err, want)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the pod is gone")
	cancel(stop)
	if _, err := b.m.appear(ctx, "disk/by-path", func() []string { return nil }); !errors.Is(err, stop) {
		t.Errorf("who waits no more: got %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	_, err := b.m.Attach(t.Context(), diskOf(t, "iscsi: {targetPortal: 10.0.0.2, iqn: '"+iqn+"', lun: 0}"), nil)
	if err == nil || !strings.Contains(err.Error(), "this machine has no program iscsiadm, which such volumes need") {
		t.Errorf("a machine without the tools: got %v", err)
	}
}

func TestDisksOfFibreChannels(t *testing.T) {
	trace.Proves(t, "FC-001", "FC-003")
	b := newBed(t, map[string]string{"multipath": "", "blockdev": ""})
	scan := b.m.path("sys/class/scsi_host/host1/scan")
	b.write(scan, "")
	b.device("by-path/pci-0000:41:00.0-fc-0x50060e801049cfd1-lun-21", "sdz") // another one
	w, err := inotify.Watch(filepath.Dir(scan), inotify.Written)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	found := make(chan struct{})
	go func() { // as an adapter that is told to look
		defer close(found)
		<-w.Changed
		b.device("by-path/pci-0000:41:00.0-fc-0x50060e801049cfd1-lun-2", "sda")
		b.device("by-path/pci-0000:42:00.0-fc-0x50060e801049cfd2-lun-2", "sdb")
		b.write(b.m.path("sys/block/dm-3/dm/uuid"), "mpath-x")
		b.write(b.m.path("sys/block/dm-3/slaves/sda"), "")
		b.write(b.m.path("dev/dm-3"), "")
	}()
	d := diskOf(t, "fc: {targetWWNs: [50060e801049cfd1, 50060e801049cfd2], lun: 2}")
	got := b.attach(d, nil)
	<-found
	if at := "/dev/disk/by-path/pci-0000:41:00.0-fc-0x50060e801049cfd1-lun-2"; got != at && got != "/dev/dm-3" { // as far as multipathd was
		t.Errorf("got device %s", got)
	}
	if got := b.attach(d, nil); got != "/dev/dm-3" || b.read(scan) != "- - -" {
		t.Errorf("got device %s after the adapter was told %q", got, b.read(scan))
	}
	if err := b.m.Detach(t.Context(), d, nil); err != nil {
		t.Error(err)
	}
	for kernel, want := range map[string]string{"sda": "1", "sdb": "1", "sdz": ""} {
		if got := b.read(b.m.path("sys/block", kernel, "device/delete")); got != want {
			t.Errorf("to remove %s: got %q, want %q", kernel, got, want)
		}
	}
	b.device("by-id/scsi-3600508b400105e21_a_000900000490000", "sdc")
	d = diskOf(t, "fc: {wwids: ['3600508b400105e21 a 000900000490000']}")
	if got := b.attach(d, nil); got != "/dev/disk/by-id/scsi-3600508b400105e21_a_000900000490000" {
		t.Errorf("by its own name: got device %s", got)
	}
}

func TestNamesOfDisksStayBelowTheirPlace(t *testing.T) {
	for spec, want := range map[string]string{
		"iscsi: {targetPortal: 10.0.0.2, iqn: '" + iqn + "', lun: 3}":                          "iscsi/iface-default/10.0.0.2:3260-" + iqn + "-lun-3",
		"iscsi: {targetPortal: 10.0.0.2, iqn: '" + iqn + "', lun: 3, iscsiInterface: ../../x}": "iscsi/iface-.._.._x/10.0.0.2:3260-" + iqn + "-lun-3",
		"fc: {targetWWNs: [a, b], lun: 0}":                                                     "fc/a-b-lun-0",
		"fc: {wwids: [../../etc]}":                                                             "fc/.._.._etc",
		"fc: {wwids: [..]}":                                                                    "fc/_..",
	} {
		if got := diskOf(t, spec).Name(); got != want {
			t.Errorf("%s: got %s, want %s", spec, got, want)
		}
	}
	if d := Of(&v1.PersistentVolume{}); d != nil {
		t.Errorf("a volume of another kind: got %s", fmt.Sprint(d))
	}
	for _, d := range []Disk{{}, {ISCSI: &ISCSI{IQN: iqn}}, {FC: &FC{}}, {ISCSI: &ISCSI{IQN: iqn, Portals: []string{"a"}, Interface: "i"}, FC: &FC{Names: []string{"x"}}}} {
		if d.Valid() {
			t.Errorf("%+v counts as a disk", d)
		}
	}
}
