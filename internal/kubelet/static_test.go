package kubelet

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
	"github.com/kemudi/kemudi/internal/kubelet/manifest"
	"github.com/kemudi/kemudi/internal/trace"
)

// newManifestNode is a node that runs the pods of a directory. What the kernel
// tells of files does not pass through virtual time: the tests tell it.
func newManifestNode(t *testing.T) (n *testNode, put func(name, text string)) {
	dir := t.TempDir()
	n = &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{}), tune: func(a *Agent) {
		a.static.Dir = &manifest.Dir{Path: dir, Node: "n1"}
	}}
	put = func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		err := os.WriteFile(path, []byte(text), 0o600)
		if text == "" {
			err = os.Remove(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		if n.agent != nil {
			n.agent.static.Apply(nil, nil)
		}
	}
	return n, put
}

// containers is how many containers run.
func (n *testNode) containers() int {
	n.t.Helper()
	synctest.Wait()
	list, err := n.cri.ListContainers(n.t.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil {
		n.t.Fatal(err)
	}
	running := 0
	for _, c := range list.Containers {
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			running++
		}
	}
	return running
}

const staticWeb = `{apiVersion: v1, kind: Pod, metadata: {name: web, labels: {app: web}}, spec: {containers: [{name: c, image: x}]}}`

func TestManifestRunsAndHasAMirrorThatCannotStopIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n, put := newManifestNode(t)
		put("web.yaml", staticWeb)
		n.run()
		defer func() { n.end() }()
		p := n.after(2*time.Second, "web-n1") // the node may have to register first
		if p == nil || !core.PodReady(p) || p.Status.PodIP == "" {
			t.Fatalf("mirror: got %+v, want a ready pod", p)
		}
		hash := p.Annotations["kubernetes.io/config.hash"]
		if p.Annotations["kubernetes.io/config.source"] != "file" || p.Annotations["kubernetes.io/config.seen"] == "" ||
			hash == "" || p.Annotations["kubernetes.io/config.mirror"] != hash || string(p.UID) == hash || p.Labels["app"] != "web" {
			t.Errorf("mirror: got %s, annotations %v, labels %v", p.UID, p.Annotations, p.Labels)
		}
		if len(p.OwnerReferences) != 1 || p.OwnerReferences[0].Kind != "Node" || !*p.OwnerReferences[0].Controller {
			t.Errorf("owner of the mirror: got %+v", p.OwnerReferences)
		}
		trace.Proves(t, "DS-046")
		deletePod(t, n.api, "web-n1", 30)
		again := n.pod("web-n1")
		if again == nil || again.UID == p.UID || again.DeletionTimestamp != nil || again.Status.ContainerStatuses[0].ContainerID != p.Status.ContainerStatuses[0].ContainerID {
			t.Errorf("mirror after its deletion: got %+v, want a new one of the same container", again)
		}
		if got := n.cri.Calls("StopContainer"); got != 0 {
			t.Errorf("the deletion of the mirror stopped %d containers", got)
		}
		n.cri.Exit("default/web-n1", "c", 1, "")
		if p := n.after(time.Second, "web-n1"); p.Status.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("after its container failed: got %+v", p.Status.ContainerStatuses)
		}
	})
}

func TestStaticPodFollowsItsFile(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n, put := newManifestNode(t)
		n.run()
		defer func() { n.end() }()
		put("web.yaml", staticWeb)
		first := n.pod("web-n1")
		put("web.yaml", strings.Replace(staticWeb, "image: x", "image: other", 1))
		second := n.pod("web-n1")
		if second == nil || second.UID == first.UID || second.Spec.Containers[0].Image != "other" || !core.PodReady(second) || n.containers() != 1 {
			t.Errorf("changed file: got %+v and %d containers, want one of the new image", second, n.containers())
		}
		put("web.yaml", "{nonsense")
		if p := n.pod("web-n1"); p == nil || p.UID != second.UID || n.containers() != 1 {
			t.Errorf("broken file: got %+v, want what ran before", p)
		}
		put("web.yaml", "")
		if p := n.after(time.Second, "web-n1"); p != nil || n.containers() != 0 {
			t.Errorf("removed file: got %+v and %d containers", p, n.containers())
		}
		if list, err := n.cri.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{}); err != nil || len(list.Items) != 0 {
			t.Errorf("sandboxes left: %v, %v", list, err)
		}
	})
}

func TestNewAgentKeepsStaticPodsAndRemovesMirrorsOfNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n, put := newManifestNode(t)
		put("web.yaml", staticWeb)
		put("old.yaml", strings.Replace(staticWeb, "name: web", "name: old", 1))
		n.run()
		defer func() { n.end() }()
		before := n.after(2*time.Second, "web-n1")
		if n.containers() != 2 {
			t.Fatalf("got %d containers, want 2", n.containers())
		}
		n.end()
		n.agent = nil // nobody sees it
		put("old.yaml", "")
		n.run()
		after := n.after(10*time.Second, "web-n1")
		if after == nil || after.UID != before.UID || after.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID || !after.Status.StartTime.Equal(before.Status.StartTime) {
			t.Errorf("after a restart of the agent: got %+v, want %+v", after, before)
		}
		if p := n.pod("old-n1"); p != nil || n.containers() != 1 {
			t.Errorf("mirror of a file that has gone: got %+v, %d containers run", p, n.containers())
		}
	})
}

// TestStaticPodWaitsForWhatIsLeftOfIt brings a file back while an agent that found the pod without it still ends that.
func TestStaticPodWaitsForWhatIsLeftOfIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n, put := newManifestNode(t)
		n.cri = fakecri.New(fakecri.Options{Program: deaf})
		put("web.yaml", staticWeb)
		n.run()
		defer func() { n.end() }()
		before := n.after(2*time.Second, "web-n1").Status.ContainerStatuses[0].ContainerID
		n.end()
		n.agent = nil // nobody sees it
		put("web.yaml", "")
		n.run()
		if n.pod("web-n1"); n.cri.Calls("StopContainer") != 1 || n.containers() != 1 {
			t.Fatalf("without its file: %d containers run", n.containers())
		}
		put("web.yaml", staticWeb)
		if n.pod("web-n1"); n.containers() != 1 || n.cri.Calls("CreateContainer") != 1 {
			t.Errorf("while the earlier one ends: %d containers run of %d", n.containers(), n.cri.Calls("CreateContainer"))
		}
		p := n.after(time.Hour, "web-n1")
		if p == nil || !core.PodReady(p) || p.Status.ContainerStatuses[0].ContainerID == before || n.containers() != 1 {
			t.Errorf("after the earlier one has ended: got %+v and %d containers, want another one", p, n.containers())
		}
		put("web.yaml", "")
		if p := n.after(time.Hour, "web-n1"); p != nil || n.containers() != 0 {
			t.Errorf("removed file: got %+v and %d containers", p, n.containers())
		}
	})
}

func TestStaticPodRunsWhileTheAPIIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n, put := newManifestNode(t)
		n.run()
		defer func() { n.end() }()
		n.api.BreakWith(os.ErrDeadlineExceeded)
		put("web.yaml", staticWeb)
		trace.Proves(t, "DS-046")
		if n.containers() != 1 {
			t.Errorf("got %d containers without the API, want 1", n.containers())
		}
		time.Sleep(time.Minute)
		n.api.BreakWith(nil)
		if p := n.after(2*time.Minute, "web-n1"); p == nil || !core.PodReady(p) {
			t.Errorf("mirror when the API is back: got %+v", p)
		}
		// A pod of the API in its place is left alone.
		other := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db-n1"}, Spec: v1.PodSpec{NodeName: "n2", Containers: []v1.Container{{Name: "c", Image: "x"}}}}
		if _, err := pods(n.api).Create(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		put("db.yaml", strings.Replace(staticWeb, "name: web", "name: db", 1))
		if p := n.after(time.Minute, "db-n1"); p == nil || p.Spec.NodeName != "n2" || n.containers() != 2 {
			t.Errorf("pod of the same name: got %+v, %d containers", p, n.containers())
		}
	})
}

// answers are what a URL says, without a network.
type answers func() (code int, text string)

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	code, text := a()
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Body: io.NopCloser(strings.NewReader(text))}, nil
}

func TestPodsOfAURLRunAndFollowIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		type said struct {
			code int
			text string
		}
		var now atomic.Pointer[said]
		say := func(code int, text string) { now.Store(&said{code, text}) }
		say(200, staticWeb)
		answer := func() (int, string) { is := now.Load(); return is.code, is.text }
		n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{}), tune: func(a *Agent) {
			a.static.URL = &manifest.URL{Address: "http://manifests.example", Node: "n1", Client: &http.Client{Transport: answers(answer)}}
			a.parts = append(a.parts, part{"static pods", func(ctx context.Context) error { return a.static.Run(ctx, a.running) }})
		}}
		n.run()
		defer func() { n.end() }()
		first := n.after(2*time.Second, "web-n1")
		if first == nil || !core.PodReady(first) || first.Annotations["kubernetes.io/config.source"] != "http" {
			t.Fatalf("mirror: got %+v, want a ready pod", first)
		}
		say(503, staticWeb)
		if p := n.after(time.Minute, "web-n1"); p == nil || p.UID != first.UID || n.containers() != 1 {
			t.Errorf("while nobody answers: got %+v and %d containers", p, n.containers())
		}
		say(200, strings.Replace(staticWeb, "image: x", "image: other", 1))
		second := n.after(21*time.Second, "web-n1")
		if second == nil || second.UID == first.UID || second.Spec.Containers[0].Image != "other" || n.containers() != 1 {
			t.Errorf("another answer: got %+v and %d containers", second, n.containers())
		}
		say(200, "{apiVersion: v1, kind: PodList, items: []}")
		if p := n.after(21*time.Second, "web-n1"); p != nil || n.containers() != 0 {
			t.Errorf("no pods any more: got %+v and %d containers", p, n.containers())
		}
	})
}
