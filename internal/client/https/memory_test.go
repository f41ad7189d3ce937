package https_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/wait"
)

// machine is one that asks the bed's server and remembers what it hears.
type machine struct {
	*bed
	line   line
	memory https.Memory

	api  *https.Transport
	stop func()

	mu      sync.Mutex
	refused []string
}

func newMachine(b *bed) *machine {
	b.Helper()
	_, err := client.For(b.local(), core.Namespaces).Create(b.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}})
	b.must(err)
	m := &machine{bed: b}
	m.memory = https.Memory{
		Dir: filepath.Join(b.TempDir(), "known"), Patience: 50 * time.Millisecond, Answers: []*resource.Def{core.PersistentVolumes.Def},
		Refused: func(err error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.refused = append(m.refused, err.Error())
		},
	}
	m.boot()
	b.Cleanup(func() { m.stop() })
	return m
}

// boot starts the machine's process.
func (m *machine) boot() {
	m.Helper()
	api, err := https.New(https.Options{
		Servers: []string{"https://" + m.addr}, CA: m.pki.CA.CertPEM(), Dial: m.line.dial, Backoff: 2 * time.Millisecond, Memory: &m.memory,
		Token: func() (string, error) { return "good", nil },
	})
	m.must(err)
	m.api = api
	g := task.NewGroup(context.WithoutCancel(m.ctx))
	g.Go("api", api.Run)
	m.stop = sync.OnceFunc(func() {
		g.Cancel(context.Canceled)
		m.must(g.Wait())
	})
}

// reboot starts it anew.
func (m *machine) reboot() {
	m.Helper()
	m.stop()
	m.boot()
}

// synced waits until a cache shows a state.
func (m *machine) synced(c *cache.Cache) *cache.Cache {
	m.Helper()
	m.await(c.Synced())
	return c
}

func (m *machine) await(c <-chan struct{}) {
	m.Helper()
	select {
	case <-c:
	case <-m.ctx.Done():
		m.Fatal(context.Cause(m.ctx))
	}
}

func heard(c *cache.Cache) bool {
	select {
	case <-c.Heard():
		return true
	default:
		return false
	}
}

// says waits until the machine has been told something about servers it does not believe.
func (m *machine) says(part string) {
	m.Helper()
	wait.Until(m.T, func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.refused) == 0 || !strings.Contains(m.refused[len(m.refused)-1], part) {
			return fmt.Errorf("got %q, want %q", m.refused, part)
		}
		return nil
	})
}

func TestAMachineWithoutServersKnowsWhatItKnew(t *testing.T) {
	t.Parallel()
	m := newMachine(newBed(t))
	kept := m.put("kept")
	c := m.synced(m.api.Cache(core.ConfigMaps.Def, ""))
	later := m.put("later")
	m.shows(c, later)
	only := "metadata.namespace=default,metadata.name=kept"
	one, release := m.api.Hold(core.ConfigMaps.Def, only)
	m.await(one.Heard())
	m.line.cut(true)
	m.reboot()
	release()

	c = m.synced(m.api.Cache(core.ConfigMaps.Def, ""))
	for _, want := range []*corev1.ConfigMap{kept, later} {
		if it := c.Get(cache.Key(want.Namespace, want.Name)); it == nil || it.Object.GetUID() != want.UID || it.Object.GetResourceVersion() != want.ResourceVersion {
			t.Errorf("%s: got %v", want.Name, it)
		}
	}
	one, release = m.api.Hold(core.ConfigMaps.Def, only)
	defer release()
	if m.synced(one); one.Len() != 1 {
		t.Errorf("one by name: got %d", one.Len())
	}
	if heard(c) || heard(one) {
		t.Error("what was known before counts as heard")
	}
	// What happened meanwhile is learned as soon as there is a server.
	m.must(client.For(m.local(), core.ConfigMaps).Delete(m.ctx, "default", "kept", metav1.DeleteOptions{}))
	m.line.mend()
	m.await(c.Heard())
	if c.Get("default/kept") != nil || c.Get("default/later") == nil {
		t.Errorf("got %d objects, want the later one", c.Len())
	}
}

// TestServersThatDoNotAnswerAreWaitedForOnce has others ask the servers first, for as long as
// a machine waits for them.
func TestServersThatDoNotAnswerAreWaitedForOnce(t *testing.T) {
	t.Parallel()
	m := newMachine(newBed(t))
	kept := m.put("kept")
	const only = "metadata.namespace=default,metadata.name=kept"
	m.shows(m.synced(m.api.Cache(core.ConfigMaps.Def, "")), kept)
	m.shows(m.synced(m.api.Cache(core.ConfigMaps.Def, only)), kept)
	volumes := client.For(m.local(), core.PersistentVolumes)
	_, err := volumes.Create(m.ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{"storage": apiresource.MustParse("1Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/v"}},
	}})
	m.must(err)
	_, err = client.For(m.api, core.PersistentVolumes).Get(m.ctx, "", "v")
	m.must(err)
	m.line.cut(true)
	m.stop()
	m.memory.Patience, m.memory.Silent = time.Hour, time.Now().Add(-2*time.Hour) // who waits anew waits for an hour
	m.boot()
	c := m.synced(m.api.Cache(core.ConfigMaps.Def, ""))
	if c.Get("default/kept") == nil || heard(c) {
		t.Error("what the machine knew is not there")
	}
	if _, err := client.For(m.api, core.PersistentVolumes).Get(m.ctx, "", "v"); err != nil {
		t.Error(err)
	}
	later := m.synced(m.api.Cache(core.ConfigMaps.Def, only))
	if until := m.api.Until(); until.After(time.Now()) || heard(later) {
		t.Errorf("got %s, want that nobody waits any more", until)
	}
	m.line.mend()
	m.await(c.Heard())
	if until := m.api.Until(); until.Before(time.Now()) {
		t.Errorf("after an answer: got %s, want that the servers have the word", until)
	}
}

func TestAnswersAreRememberedOneByOne(t *testing.T) {
	t.Parallel()
	m := newMachine(newBed(t))
	volumes := client.For(m.local(), core.PersistentVolumes)
	made, err := volumes.Create(m.ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{"storage": apiresource.MustParse("1Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/v"}},
	}})
	m.must(err)
	get := func() (*corev1.PersistentVolume, error) {
		return client.For(m.api, core.PersistentVolumes).Get(m.ctx, "", "v")
	}
	_, err = get()
	m.must(err)
	m.line.cut(true)
	m.reboot()
	got, err := get()
	if err != nil || got.UID != made.UID || got.Spec.HostPath == nil {
		t.Errorf("got %v, %v, want %v", got, err, made)
	}
	c := m.api.Cache(core.ConfigMaps.Def, "") // which goes on asking
	m.line.mend()
	m.await(c.Heard())
	m.must(volumes.Delete(m.ctx, "", "v", metav1.DeleteOptions{}))
	wait.Until(t, func() error { // a server that is slower than the machine's patience is not heard
		if got, err := get(); err == nil {
			return fmt.Errorf("got %v of a server that has it no more", got)
		}
		return nil
	})
}

// TestServersOfAnotherClusterAreNotBelieved replaces the cluster behind the address, with
// all its keys, as somebody does who loses the store alone.
func TestServersOfAnotherClusterAreNotBelieved(t *testing.T) {
	t.Parallel()
	m := newMachine(newBed(t))
	kept := m.put("kept")
	c := m.synced(m.api.Cache(core.ConfigMaps.Def, ""))
	m.shows(c, kept)
	m.bed.stop()
	m.must(os.RemoveAll(filepath.Join(m.dir, "etcd")))
	m.bed.start()
	for _, name := range []string{"default", "kube-system"} {
		_, err := client.For(m.local(), core.Namespaces).Create(m.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		m.must(err)
	}
	for range 20 { // beyond what the machine has seen of the first one
		m.put(fmt.Sprint("other", time.Now().UnixNano()))
	}
	m.says("another cluster")
	if err := m.api.Verify(m.ctx); err == nil || !strings.Contains(err.Error(), "kemudi reset") {
		t.Errorf("got %v, want what to do", err)
	}
	m.reboot()
	c = m.synced(m.api.Cache(core.ConfigMaps.Def, ""))
	m.says("another cluster")
	if c.Get("default/kept") == nil || c.Len() != 1 || heard(c) {
		t.Errorf("got %d objects, want the one that was known", c.Len())
	}
}

// TestServersAtAnEarlierStateAreNotBelieved restores the store of an hour ago.
func TestServersAtAnEarlierStateAreNotBelieved(t *testing.T) {
	t.Parallel()
	m := newMachine(newBed(t))
	m.bed.stop()
	old := filepath.Join(t.TempDir(), "copy")
	m.must(os.CopyFS(old, os.DirFS(filepath.Join(m.dir, "etcd"))))
	m.bed.start()
	kept := m.put("kept")
	c := m.synced(m.api.Cache(core.ConfigMaps.Def, ""))
	m.shows(c, kept)
	m.bed.stop()
	m.must(os.RemoveAll(filepath.Join(m.dir, "etcd")))
	m.must(os.CopyFS(filepath.Join(m.dir, "etcd"), os.DirFS(old)))
	m.bed.start()
	m.says("earlier time")
	m.reboot()
	c = m.synced(m.api.Cache(core.ConfigMaps.Def, ""))
	if c.Get("default/kept") == nil || heard(c) {
		t.Error("what the machine knew is not there")
	}
	err := m.api.Verify(m.ctx)
	if err == nil || !strings.Contains(err.Error(), m.memory.Dir) {
		t.Errorf("got %v, want what to do", err)
	}
	// That is done.
	m.stop()
	m.must(os.RemoveAll(m.memory.Dir))
	m.boot()
	c = m.api.Cache(core.ConfigMaps.Def, "")
	m.await(c.Heard())
	if c.Len() != 0 {
		t.Errorf("got %d objects, want what the servers have", c.Len())
	}
}

// TestWhatDoesNotMatterIsNotWritten looks at the files while objects change.
func TestWhatDoesNotMatterIsNotWritten(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	m := newMachine(b)
	m.stop()
	m.memory.Worth = func(was, is resource.Object) bool { return was.GetLabels()["worth"] != is.GetLabels()["worth"] }
	one := m.put("one")
	m.boot()
	c := m.synced(m.api.Cache(core.ConfigMaps.Def, ""))
	m.reboot() // which writes what is left
	files := func() string {
		var all []string
		found, err := filepath.Glob(filepath.Join(m.memory.Dir, "*"))
		b.must(err)
		for _, f := range found {
			info, err := os.Stat(f)
			b.must(err)
			all = append(all, fmt.Sprint(filepath.Base(f), info.ModTime().UnixNano()))
		}
		return strings.Join(all, " ")
	}
	before := files()
	change := func(key, value string) {
		one.Labels = map[string]string{"worth": one.Labels["worth"], key: value}
		var err error
		one, err = client.For(b.local(), core.ConfigMaps).Update(b.ctx, one)
		b.must(err)
		c = m.synced(m.api.Cache(core.ConfigMaps.Def, ""))
		m.shows(c, one)
	}
	change("beat", "1")
	change("beat", "2")
	m.reboot()
	m.await(m.api.Cache(core.ConfigMaps.Def, "").Heard())
	m.reboot()
	if got := files(); got != before {
		t.Errorf("got %s, want %s", got, before)
	}
	change("worth", "yes")
	m.reboot()
	if got := files(); got == before {
		t.Error("what matters was not written")
	}
}

// TestADeletionWaitsUntilTheDiskKnows has a machine end at once after it has deleted what it
// was told to end.
func TestADeletionWaitsUntilTheDiskKnows(t *testing.T) {
	t.Parallel()
	m := newMachine(newBed(t))
	made := m.put("ends")
	c := m.synced(m.api.Cache(core.ConfigMaps.Def, ""))
	m.shows(c, made)
	made.Finalizers = []string{"example.com/stay"}
	made, err := client.For(m.local(), core.ConfigMaps).Update(m.ctx, made)
	m.must(err)
	m.shows(c, made)
	m.must(client.For(m.api, core.ConfigMaps).Delete(m.ctx, "default", "ends", metav1.DeleteOptions{}))
	known := filepath.Join(t.TempDir(), "known") // as it is when the machine loses its power now
	m.must(os.CopyFS(known, os.DirFS(m.memory.Dir)))
	m.line.cut(true)
	m.stop()
	m.memory.Dir = known
	m.boot()
	c = m.synced(m.api.Cache(core.ConfigMaps.Def, ""))
	if it := c.Get("default/ends"); it == nil || it.Object.GetResourceVersion() != made.ResourceVersion {
		t.Errorf("got %v, want revision %s, which the machine saw before it deleted", it, made.ResourceVersion)
	}
}

func TestAMemoryThatIsDamagedIsLikeNone(t *testing.T) {
	t.Parallel()
	m := newMachine(newBed(t))
	kept := m.put("kept")
	m.shows(m.synced(m.api.Cache(core.ConfigMaps.Def, "")), kept)
	m.stop()
	files, err := filepath.Glob(filepath.Join(m.memory.Dir, "configmaps-*"))
	m.must(err)
	if len(files) != 1 {
		t.Fatalf("got %v", files)
	}
	m.must(os.Truncate(files[0], 20))
	m.boot()
	c := m.api.Cache(core.ConfigMaps.Def, "")
	m.await(c.Heard())
	m.shows(c, kept)
	m.stop()
	clusters, err := filepath.Glob(filepath.Join(m.memory.Dir, "cluster-*"))
	m.must(err)
	m.must(os.Truncate(clusters[0], 20))
	if _, err := https.New(https.Options{Servers: []string{"https://" + m.addr}, Memory: &m.memory}); err == nil || !strings.Contains(err.Error(), "remove "+m.memory.Dir) {
		t.Errorf("got %v, want what to do", err)
	}
}
