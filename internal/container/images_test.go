package container

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/ociimage"
	"github.com/kemudi/kemudi/test/wait"
)

func grpcCode(err error) string { return status.Code(err).String() }

func testLogger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

// stored counts the blobs and snapshots that the runtime keeps.
func (h *host) stored() (n int) {
	h.Helper()
	im := h.images()
	ctx := namespaces.WithNamespace(h.Context(), Namespace)
	lease, err := im.client.LeasesService().Create(ctx, leases.WithRandomID())
	if err != nil {
		h.Fatal(err)
	}
	if err := im.client.LeasesService().Delete(ctx, lease, leases.SynchronousDelete); err != nil { // collects garbage
		h.Fatal(err)
	}
	if err := im.client.ContentStore().Walk(ctx, func(content.Info) error { n++; return nil }); err != nil {
		h.Fatal(err)
	}
	if err := im.client.SnapshotService("overlayfs").Walk(ctx, func(context.Context, snapshots.Info) error { n++; return nil }); err != nil {
		h.Fatal(err)
	}
	return n
}

func small(names ...string) ociimage.Image {
	return ociimage.Image{Names: names, Files: []ociimage.File{{Path: "/hello", Content: []byte(names[0])}}}
}

// rewrite copies a tar, changing files as edit says; nil leaves one out.
func rewrite(t *testing.T, archive []byte, edit func(name string, data []byte) []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	r, w := tar.NewReader(bytes.NewReader(archive)), tar.NewWriter(&out)
	for {
		hdr, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if data = edit(hdr.Name, data); data == nil {
			continue
		}
		hdr.Size = int64(len(data))
		if err := w.WriteHeader(hdr); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestImportRefusesWhatItCannotRunAndLeavesNothing(t *testing.T) {
	h := newHost(t)
	h.start()
	images := h.images()
	good := h.archive(small("kemudi.local/good:1"))
	if _, err := images.Import(t.Context(), bytes.NewReader(good)); err != nil {
		t.Fatal(err)
	}
	before := h.stored()
	bad := h.archive(small("kemudi.local/bad:1"), small("kemudi.local/bad:2"))
	arm := small("kemudi.local/bad:1")
	arm.Arch = "s390x"
	noOCI := func(edit func(name string, data []byte) []byte) func(string, []byte) []byte {
		return func(name string, data []byte) []byte {
			if name == "oci-layout" || name == "index.json" {
				return nil // leaves the docker archive
			}
			return edit(name, data)
		}
	}
	isLayer := func(data []byte) bool { return bytes.HasPrefix(data, []byte{0x1f, 0x8b}) }
	for _, c := range []struct {
		name    string
		archive []byte
		want    string
	}{
		{"nothing", nil, "read archive"},
		{"no archive at all", []byte(strings.Repeat("this is not a tar\n", 100)), "read archive"},
		{"cut off", bad[:len(bad)*2/3], "read archive"},
		{"cut off in its compression", cut(gzipped(t, bad)), "read archive"},
		{"a tar of something else", rewrite(t, bad, func(name string, data []byte) []byte {
			if strings.HasPrefix(name, "blobs/") {
				return data
			}
			return nil
		}), "unrecognized image format"},
		{"layer missing", rewrite(t, bad, func(_ string, data []byte) []byte {
			if isLayer(data) {
				return nil
			}
			return data
		}), "incomplete"},
		{"layer damaged", rewrite(t, bad, func(_ string, data []byte) []byte {
			if isLayer(data) {
				data[len(data)-5] ^= 1
			}
			return data
		}), "incomplete"},
		{"layer damaged in a docker archive", rewrite(t, bad, noOCI(func(_ string, data []byte) []byte {
			if isLayer(data) {
				data[len(data)/2] ^= 0xff
			}
			return data
		})), "unpack"},
		{"index is not JSON", rewrite(t, bad, func(name string, data []byte) []byte {
			if name == "index.json" {
				return []byte("{")
			}
			return data
		}), "index"},
		{"no name", rewrite(t, bad, func(name string, data []byte) []byte {
			if name == "index.json" {
				data = bytes.ReplaceAll(data, []byte("io.containerd.image.name"), []byte("other"))
			}
			return data
		}), "has no full name"},
		{"another machine's", h.archive(arm), "the archive has none for linux/"},
	} {
		t.Run(c.name, func(t *testing.T) {
			names, err := images.Import(t.Context(), bytes.NewReader(c.archive))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("import: got %v, %v; want an error with %q", names, err, c.want)
			}
			if after := h.stored(); after != before {
				t.Errorf("blobs in the store: got %d, want %d as before", after, before)
			}
		})
	}
	list, err := images.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := imageNames(list); !slices.Equal(got, []string{"kemudi.local/good:1", PauseImage}) {
		t.Errorf("images afterwards: got %v", got)
	}
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func cut(data []byte) []byte { return data[:len(data)/2] }

func imageNames(list []ImageInfo) (all []string) {
	for _, i := range list {
		all = append(all, i.Names...)
	}
	return all
}

func TestImagesWithoutARuntimeFailAtOnce(t *testing.T) {
	socket := t.TempDir() + "/none.sock"
	if _, err := DialImages(socket); err == nil || !strings.Contains(err.Error(), "connect to the container runtime: dial unix "+socket) {
		t.Errorf("got %v", err)
	}
}

func TestWorkOnImagesEndsWithTheRuntime(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "runtime.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	runtime := grpc.NewServer()
	var serving sync.WaitGroup
	serving.Go(func() { _ = runtime.Serve(l) })
	defer serving.Wait()
	defer runtime.Stop()
	images, err := DialImages(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer images.Close()
	if err := images.WhileConnected(t.Context(), func(context.Context) error { return nil }); err != nil {
		t.Errorf("work that ends: got %v", err)
	}
	err = images.WhileConnected(t.Context(), func(ctx context.Context) error {
		runtime.Stop() // as if it were killed
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, errLost) || !errors.Is(err, context.Canceled) {
		t.Errorf("work without a runtime: got %v, want %v", err, errLost)
	}
}

func TestImportTakesEveryKindOfArchive(t *testing.T) {
	h := newHost(t)
	h.start()
	images := h.images()
	oci := h.archive(small("kemudi.local/a:1", "kemudi.local/a:latest"), small("kemudi.local/b:1"))
	docker := rewrite(t, h.archive(small("docker.io/library/c:1")), func(name string, data []byte) []byte {
		if name == "oci-layout" || name == "index.json" {
			return nil
		}
		return bytes.ReplaceAll(data, []byte("docker.io/library/c:1"), []byte("c:1"))
	})
	for _, c := range []struct {
		name    string
		archive []byte
		want    []string
	}{
		{"OCI layout with two images", oci, []string{"kemudi.local/a:1", "kemudi.local/a:latest", "kemudi.local/b:1"}},
		{"docker archive with a short name", docker, []string{"docker.io/library/c:1"}},
		{"compressed", gzipped(t, h.archive(small("kemudi.local/d:1"))), []string{"kemudi.local/d:1"}},
		{"again, with other content", h.archive(ociimage.Image{Names: []string{"kemudi.local/d:1"}, Files: []ociimage.File{{Path: "/new"}}}), []string{"kemudi.local/d:1"}},
	} {
		got, err := images.Import(t.Context(), bytes.NewReader(c.archive))
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, %v; want %v", c.name, got, err, c.want)
		}
	}
	list, err := images.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"docker.io/library/c:1", "kemudi.local/a:1", "kemudi.local/a:latest", "kemudi.local/b:1", "kemudi.local/d:1", PauseImage}
	if got := imageNames(list); !slices.Equal(got, want) {
		t.Errorf("images: got %v, want %v", got, want)
	}
	for _, i := range list {
		if len(i.Names) > 0 && !i.Pinned {
			t.Errorf("%v: not pinned, although no registry may have it", i.Names)
		}
	}
}

func TestRemoveTakesOneNameAtATimeAndFollowersHearOfIt(t *testing.T) {
	h := newHost(t)
	h.start()
	images := h.images()
	before := h.stored()
	ctx, cancel := context.WithCancel(t.Context())
	changes, followed := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		followed <- images.Follow(ctx, func() {
			select {
			case changes <- struct{}{}:
			default: // told already
			}
		})
	}()
	// told waits until a follower that looks whenever it is told has seen this.
	told := func(want ...string) {
		t.Helper()
		for {
			if list, err := images.List(t.Context()); err != nil {
				t.Fatal(err)
			} else if slices.Equal(imageNames(list), append(want, PauseImage)) {
				return
			}
			select {
			case <-changes:
			case <-time.After(wait.Patience):
				t.Fatalf("a follower was not told that there are the images %v", want)
			}
		}
	}
	<-changes
	for heard := false; !heard; { // the follower is not yet heard by the runtime, perhaps
		if _, err := images.Import(t.Context(), bytes.NewReader(h.archive(small("kemudi.local/a:1", "kemudi.local/a:2")))); err != nil {
			t.Fatal(err)
		}
		select {
		case <-changes:
			heard = true
		case <-time.After(time.Second):
		}
	}
	told("kemudi.local/a:1", "kemudi.local/a:2")
	check := func(want ...string) {
		t.Helper()
		list, err := images.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := imageNames(list); !slices.Equal(got, append(want, PauseImage)) {
			t.Errorf("images: got %v, want %v and pause", got, want)
		}
	}
	if err := images.Remove(t.Context(), "kemudi.local/a:1"); err != nil {
		t.Error(err)
	}
	check("kemudi.local/a:2")
	if err := images.Remove(t.Context(), "kemudi.local/a:2"); err != nil {
		t.Error(err)
	}
	check()
	told()
	cancel()
	if err := <-followed; !errors.Is(err, context.Canceled) {
		t.Errorf("Follow: got %v, want that it was cancelled", err)
	}
	if after := h.stored(); after != before {
		t.Errorf("blobs and snapshots: got %d, want %d as before", after, before)
	}
	if err := images.Remove(t.Context(), "kemudi.local/a:2"); !errdefs.IsNotFound(err) {
		t.Errorf("remove what is not there: got %v, want not found", err)
	}
	if err := images.Remove(t.Context(), PauseImage); err == nil || !strings.Contains(err.Error(), "part of kemudi") {
		t.Errorf("remove pause: got %v, want a refusal", err)
	}
	if err := images.Remove(t.Context(), "Not A Name"); err == nil || !strings.Contains(err.Error(), `image name "Not A Name"`) {
		t.Errorf("remove nonsense: got %v", err)
	}
}

func TestImportOnAFullDiskLeavesRoomAgain(t *testing.T) {
	h := newHost(t)
	if err := os.MkdirAll(h.o.DataDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", h.o.DataDir, "tmpfs", 0, "size=74m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // runs before the directory is removed
		if h.proc != nil {
			h.kill()
		}
		if _, err := Reset(t.Context(), h.o); err != nil && !errors.Is(err, t.Context().Err()) {
			t.Logf("reset: %v", err)
		}
		if err := unix.Unmount(h.o.DataDir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	h.start()
	images := h.images()
	before, free := h.stored(), freeBytes(t, h.o.DataDir)
	large := func(name string, mb int) []byte {
		data := make([]byte, mb<<20)
		rand.Read(data)
		return h.archive(ociimage.Image{Names: []string{name}, Files: []ociimage.File{{Path: "/large", Content: data}}})
	}
	for _, c := range []struct {
		name string
		mb   int
	}{{"too large to store", 60}, {"too large to unpack", 26}} {
		_, err := images.Import(t.Context(), bytes.NewReader(large("kemudi.local/large:1", c.mb)))
		if err == nil || !strings.Contains(err.Error(), "no space left on device") {
			t.Errorf("%s: got %v, want no space left on device", c.name, err)
		}
		if after := h.stored(); after != before {
			t.Errorf("%s: blobs in the store: got %d, want %d as before", c.name, after, before)
		}
		h.eventually("the disk space to come back", func() bool { return freeBytes(t, h.o.DataDir) > free-2<<20 })
	}
	if _, err := images.Import(t.Context(), bytes.NewReader(large("kemudi.local/fits:1", 5))); err != nil {
		t.Errorf("import of a small image afterwards: %v", err)
	}
}

func freeBytes(t *testing.T, dir string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bavail) * st.Bsize
}

// upload sends data to a registry.
func upload(t *testing.T, method, url, contentType string, data []byte) {
	t.Helper()
	req, err := http.NewRequest(method, url, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusCreated {
		t.Fatalf("%s %s: %s", method, url, res.Status)
	}
}

// push stores an image in a registry.
func push(t *testing.T, repository, tag string, image v1.Image) {
	t.Helper()
	send := func(method, url, contentType string, data []byte) {
		t.Helper()
		upload(t, method, url, contentType, data)
	}
	blob := func(digest v1.Hash, data []byte) {
		send(http.MethodPost, repository+"/blobs/uploads/?digest="+digest.String(), "application/octet-stream", data)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		r, err := l.Compressed()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		digest, err := l.Digest()
		if err != nil {
			t.Fatal(err)
		}
		blob(digest, data)
	}
	config, err := image.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := image.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	blob(digest, config)
	manifest, err := image.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	kind, err := image.MediaType()
	if err != nil {
		t.Fatal(err)
	}
	send(http.MethodPut, repository+"/manifests/"+tag, string(kind), manifest)
}

func TestPullsFromARegistry(t *testing.T) {
	h := newHost(t)
	srv := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(testLogger(t).Handler(), slog.LevelDebug))))
	t.Cleanup(srv.Close)
	address := strings.TrimPrefix(srv.URL, "http://")
	built, err := ociimage.Build(small("kemudi.local/a:1"))
	if err != nil {
		t.Fatal(err)
	}
	push(t, srv.URL+"/v2/team/a", "1", built)
	// A second registry that exists in the configuration only: a mirror.
	mirror := h.o.RegistryConfigDir + "/registry.example"
	if err := os.MkdirAll(mirror, 0o755); err != nil {
		t.Fatal(err)
	}
	hosts := "server = \"" + srv.URL + "\"\n[host.\"" + srv.URL + "\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
	if err := os.WriteFile(mirror+"/hosts.toml", []byte(hosts), 0o644); err != nil {
		t.Fatal(err)
	}
	h.start()
	images := h.images()
	want, err := built.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{address + "/team/a:1", "registry.example/team/a:1"} {
		id, err := images.Pull(t.Context(), name, nil)
		if err != nil || id != want.String() {
			t.Errorf("pull %s: got %s, %v; want %s", name, id, err, want)
		}
	}
	_, err = images.Pull(t.Context(), address+"/team/none:1", nil)
	if grpcCode(errors.Unwrap(err)) != "NotFound" {
		t.Errorf("pull of what is not there: got %v, want not found", err)
	}
	if _, err := images.Pull(t.Context(), "127.0.0.1:1/team/a:1", nil); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("pull where nobody listens: got %v, want connection refused", err)
	}
	st, err := h.cri().Images.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: address + "/team/a:1"}})
	if err != nil || st.Image.GetId() != want.String() || len(st.Image.RepoDigests) == 0 {
		t.Errorf("status of the pulled image: got %v, %v", st, err)
	}
}
