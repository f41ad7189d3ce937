package e2e

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// imageRegistry is a registry on the machine's loopback address.
type imageRegistry struct {
	addr   string
	locked atomic.Bool // asks for a password
	pulls  atomic.Int64
	store  http.Handler
}

func (r *imageRegistry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if user, password, _ := req.BasicAuth(); r.locked.Load() && (user != "robot" || password != "secret") {
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
		return
	}
	if strings.Contains(req.URL.Path, "/manifests/") && req.Method != http.MethodPut {
		r.pulls.Add(1)
	}
	r.store.ServeHTTP(w, req)
}

// newRegistry serves a registry that has the busybox image as test/busybox:1.
func newRegistry(t *testing.T, c *cluster) *imageRegistry {
	t.Helper()
	r := &imageRegistry{store: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	var l net.Listener
	c.host.Must(func() (err error) {
		l, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	})
	srv := &http.Server{Handler: r} //nolint:gosec // only this test asks
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	r.addr = l.Addr().String()
	for _, file := range c.images {
		if !strings.HasSuffix(file, "/busybox-1.tar") {
			continue
		}
		image, err := tarball.Image(func() (io.ReadCloser, error) { return os.Open(file) }, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"test/busybox", "test/private"} {
			if err := r.push(name, "1", image); err != nil {
				t.Fatalf("push: %v", err)
			}
		}
	}
	return r
}

// push stores an image without a client: the parts first, then what names them.
func (r *imageRegistry) push(repository, tag string, image v1.Image) error {
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	for _, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			return err
		}
		data, err := layer.Compressed()
		if err != nil {
			return err
		}
		if err := r.put(http.MethodPost, "/v2/"+repository+"/blobs/uploads/?digest="+digest.String(), "application/octet-stream", data); err != nil {
			return err
		}
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return err
	}
	digest, err := image.ConfigName()
	if err != nil {
		return err
	}
	if err := r.put(http.MethodPost, "/v2/"+repository+"/blobs/uploads/?digest="+digest.String(), "application/octet-stream", bytes.NewReader(config)); err != nil {
		return err
	}
	manifest, err := image.RawManifest()
	if err != nil {
		return err
	}
	kind, err := image.MediaType()
	if err != nil {
		return err
	}
	return r.put(http.MethodPut, "/v2/"+repository+"/manifests/"+tag, string(kind), bytes.NewReader(manifest))
}

func (r *imageRegistry) put(method, url, contentType string, body io.Reader) error {
	req := httptest.NewRequest(method, url, body)
	req.Header.Set("Content-Type", contentType)
	w := httptest.NewRecorder()
	r.store.ServeHTTP(w, req)
	if w.Code >= 300 {
		return fmt.Errorf("%s %s: %d %s", method, url, w.Code, w.Body)
	}
	return nil
}

// testCredentials pulls an image of a locked registry, to which secret key opens,
// with credentials from all the places they can be in.
func testCredentials(t *testing.T, k kubectl, image string) {
	c, addr := k.cluster, strings.TrimSuffix(image, "/test/busybox:1")
	k.do(t, "create", "secret", "docker-registry", "wrong", "--docker-server="+addr, "--docker-username=robot", "--docker-password=guess")
	k.do(t, "create", "secret", "docker-registry", "elsewhere", "--docker-server=r.example", "--docker-username=robot", "--docker-password=guess")
	k.do(t, "create", "serviceaccount", "puller")
	k.do(t, "patch", "serviceaccount", "puller", "-p", `{"imagePullSecrets": [{"name": "elsewhere"}, {"name": "wrong"}, {"name": "key"}]}`)
	out := k.apply(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: private-image-test-1}\nspec: {serviceAccountName: puller, restartPolicy: Never, containers: [{name: uses-private-image, image: '"+image+"', imagePullPolicy: Always, command: [echo, SUCCESS]}]}\n")
	trace.Proves(t, "IMG-046")
	if out != "pod/private-image-test-1 created\n" {
		t.Errorf("apply: got %q", out)
	}
	c.await(t, k.namespace, "private-image-test-1", hasEnded)
	trace.Proves(t, "IMG-046", "IMG-061")
	if got := k.do(t, "logs", "private-image-test-1"); got != "SUCCESS\n" {
		t.Errorf("logs: got %q", got)
	}
	trace.Proves(t, "IMG-059")
	if got := k.do(t, "get", "pod", "private-image-test-1", "-o", "jsonpath={.spec.imagePullSecrets[*].name}"); got != "elsewhere wrong key" {
		t.Errorf("pull secrets of the pod: got %q, want its account's", got)
	}

	// The node's own, by which everybody may pull.
	config := filepath.Join(c.DataDir, "kubelet/config.json")
	key := k.do(t, "get", "secret", "key", "-o", `go-template={{index .data ".dockerconfigjson" | base64decode}}`)
	if err := os.WriteFile(config, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	_, got := c.finish(t, k.namespace, "metadata: {name: anybody}\nspec: {restartPolicy: Never, imagePullSecrets: [{name: wrong}], containers: [{name: c, image: '"+image+"', imagePullPolicy: Always, command: [echo, pulled]}]}\n")
	trace.Proves(t, "IMG-018/node-configuration", "IMG-019/every-pod", "IMG-042/copied", "IMG-050", "IMG-060")
	if got != "pulled\n" {
		t.Errorf("by the key of the node: got %q", got)
	}
	if err := os.Remove(config); err != nil {
		t.Fatal(err)
	}
	node := c.hostname(t)
	trace.Proves(t, "IMG-043")
	if got := k.do(t, "get", "nodes", "-o", "jsonpath={range.items[*].metadata}{.name} {end}"); got != node+" " {
		t.Errorf("names of the nodes: got %q, want %q", got, node+" ")
	}
	wait.Until(t, func() error { // with the next heartbeat
		if got := k.do(t, "get", "node", node, "-o", "jsonpath={.status.images[*].names[*]}"); !strings.Contains(got, image) {
			return fmt.Errorf("images of the node: got %q, want %s among them", got, image)
		}
		return nil
	})
	addresses := func(kind string) string {
		return k.do(t, "get", "nodes", "-o", `jsonpath={range .items[*].status.addresses[?(@.type=="`+kind+`")]}{.address} {end}`)
	}
	trace.Proves(t, "IMG-044", "IMG-045/entries")
	if hostname, external := addresses("Hostname"), addresses("ExternalIP"); hostname != node+" " || external != "" {
		t.Errorf("addresses: got %q and %q, want %q and none", hostname, external, node)
	}
}

// testRegistry pulls images by the rules of their pull policies, with and without a password.
func testRegistry(t *testing.T, c *cluster) {
	r := newRegistry(t, c)
	k := c.kubectl().in(c.namespace(t))
	image := r.addr + "/test/busybox:1"
	run := func(pod, policy, more string) {
		t.Helper()
		_, got := c.finish(t, k.namespace, "metadata: {name: "+pod+"}\nspec: {restartPolicy: Never"+more+", containers: [{name: c, image: '"+image+"', imagePullPolicy: "+policy+", command: [echo, hello]}]}\n")
		if got != "hello\n" {
			t.Errorf("%s: got %q", pod, got)
		}
	}
	trace.Proves(t, "IMG-002/registry")
	run("first", "IfNotPresent", "")
	c.awaitEvent(t, k.namespace, "first", "Pulling", `Pulling image "`+image+`"`)
	c.awaitEvent(t, k.namespace, "first", "Pulled", `Successfully pulled image "`+image+`" in `)
	pulls := r.pulls.Load()
	run("present", "IfNotPresent", "")
	c.awaitEvent(t, k.namespace, "present", "Pulled", `Container image "`+image+`" already present on machine and can be accessed by the pod`)
	trace.Proves(t, "IMG-004")
	if got := r.pulls.Load(); got != pulls {
		t.Errorf("a present image was asked for: %d requests", got-pulls)
	}
	run("always", "Always", ", initContainers: [{name: init, image: '"+image+"', imagePullPolicy: Always, command: ['true']}]")
	trace.Proves(t, "INIT-024/Pulling")
	c.awaitEvent(t, k.namespace, "always", "Pulling", `spec.initContainers{init}: Pulling image "`+image+`"`)
	trace.Proves(t, "IMG-005")
	if got := r.pulls.Load(); got == pulls {
		t.Error("policy Always did not ask the registry")
	}
	_, got := c.finish(t, k.namespace, "metadata: {name: files}\nspec: {restartPolicy: Never, volumes: [{name: v, image: {reference: '"+image+"', pullPolicy: Always}}], containers: [{name: c, image: kemudi.local/agnhost:1, command: [sh, -c, 'head -1 /volume/etc/passwd; touch /volume/x 2>&1 | grep -o Read-only'], volumeMounts: [{name: v, mountPath: /volume}]}]}\n")
	trace.Proves(t, "C-263")
	if got != "root:x:0:0:root:/root:/bin/sh\nRead-only\n" {
		t.Errorf("files of an image: got %q", got)
	}
	r.locked.Store(true)
	c.create(t, k.namespace, "metadata: {name: stranger}\nspec: {containers: [{name: c, image: '"+image+"', imagePullPolicy: Always}]}\n")
	trace.Proves(t, "IMG-021", "IMG-052/pull-policy")
	c.await(t, k.namespace, "stranger", isWaiting("ImagePullBackOff"))
	c.awaitEvent(t, k.namespace, "stranger", "Failed", "authorization failed")
	c.awaitEvent(t, k.namespace, "stranger", "Failed", "Error: ErrImagePull")
	trace.Proves(t, "IMG-047")
	k.wants(t, []string{"Warning  Failed     ", `Failed to pull image "` + image + `": `, "Error: ErrImagePull"}, "describe", "pods/stranger")
	k.do(t, "delete", "pod", "stranger", "--now") // or it would pull again when it may
	trace.Proves(t, "IMG-018/pre-pulled", "IMG-020/every-pod", "IMG-052/pull-policy", "IMG-053")
	run("squatter", "IfNotPresent", "") // may use what is there
	run("settler", "Never", "")
	trace.Proves(t, "IMG-055")
	k.wants(t, []string{"secret/key created\n"}, "create", "secret", "docker-registry", "key", "--docker-server="+r.addr, "--docker-username=robot", "--docker-password=secret", "--docker-email=robot@example.com")
	trace.Proves(t, "IMG-018/imagePullSecrets", "IMG-021", "IMG-054")
	run("friend", "Always", ", imagePullSecrets: [{name: key}]")
	trace.Proves(t, "KEP-2535")
	private := r.addr + "/test/private:1" // which nobody has pulled before a password was needed
	c.create(t, k.namespace, "metadata: {name: owner}\nspec: {terminationGracePeriodSeconds: 0, imagePullSecrets: [{name: key}], containers: [{name: c, image: '"+private+"', command: [sleep, '1000']}]}\n")
	c.await(t, k.namespace, "owner", isReady)
	c.create(t, k.namespace, "metadata: {name: thief}\nspec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: '"+private+"', imagePullPolicy: IfNotPresent}]}\n")
	c.await(t, k.namespace, "thief", isWaiting("ImagePullBackOff"))
	k.do(t, "delete", "pod", "thief", "owner", "--now")
	t.Run("secret of another namespace", func(t *testing.T) {
		ns := c.namespace(t)
		trace.Proves(t, "IMG-058")
		c.create(t, ns, "metadata: {name: foreigner}\nspec: {terminationGracePeriodSeconds: 0, imagePullSecrets: [{name: key}], containers: [{name: c, image: '"+image+"', imagePullPolicy: Always}]}\n")
		c.await(t, ns, "foreigner", isWaiting("ImagePullBackOff"))
		k.in(ns).do(t, "delete", "pod", "foreigner", "--now")
	})
	testCredentials(t, k, image)
	cli := []string{c.bin, "image", "--data-dir", c.DataDir, "--run-dir", c.RunDir}
	command := func(args ...string) output {
		return c.run(t.Context(), nil, append(append([]string{cli[0], cli[1], args[0]}, cli[2:]...), args[1:]...)...)
	}
	if o := command("ls"); o.code != 0 || !strings.Contains(o.stdout, image) || !strings.Contains(o.stdout, "kemudi.local/web:1") {
		t.Errorf("image ls: got %+v", o)
	}
	if o := command("rm", image); o.code != 0 {
		t.Errorf("image rm: got %+v", o)
	}
	if o := command("ls", "-o", "json"); o.code != 0 || strings.Contains(o.stdout, image) {
		t.Errorf("image ls after rm: got %+v", o)
	}
	if o := command("pull", image); o.code != 1 || !strings.Contains(o.stderr, "authorization failed") {
		t.Errorf("image pull without credentials: got %+v", o)
	}
	login := filepath.Join(c.DataDir, "kubelet", "config.json")
	if err := os.WriteFile(login, []byte(`{"auths": {"`+r.addr+`": {"username": "robot", "password": "secret"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(login)
	if o := command("pull", image); o.code != 0 || !strings.HasPrefix(o.stdout, "sha256:") {
		t.Errorf("image pull: got %+v", o)
	}
	r.locked.Store(false)
	if o := command("pull", r.addr+"/none:1"); o.code != 1 || !strings.Contains(o.stderr, "not found") {
		t.Errorf("image pull of none: got %+v", o)
	}
}
