package container

import (
	"bytes"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/ociimage"
	"github.com/kemudi/kemudi/internal/trace"
)

// naughty is a registry that does wrong what an image's repository is called
// after: status-500, other (bytes than were asked for), cut (in the middle of the
// first blob), stop (before any).
type naughty struct {
	store http.Handler
	cuts  atomic.Int64
}

func (n *naughty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if code, ok := strings.CutPrefix(r.URL.Path, "/v2/status-"); ok && r.Method != http.MethodPut && r.Method != http.MethodPost {
		code, err := strconv.Atoi(code[:3])
		if err != nil {
			panic(err)
		}
		http.Error(w, "that is how it is", code)
		return
	}
	if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
		n.store.ServeHTTP(w, r)
		return
	}
	whole := r.Clone(r.Context())
	whole.Header.Del("Range")
	answer := httptest.NewRecorder()
	n.store.ServeHTTP(answer, whole)
	data := answer.Body.Bytes()
	switch {
	case strings.HasPrefix(r.URL.Path, "/v2/other/"):
		data[len(data)-1]++
	case strings.HasPrefix(r.URL.Path, "/v2/stop/"), strings.HasPrefix(r.URL.Path, "/v2/cut/") && n.cuts.Add(1) == 1:
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		if strings.HasPrefix(r.URL.Path, "/v2/cut/") {
			_, _ = w.Write(data[:len(data)/2])
		}
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

// newNaughty returns a registry that was told nothing bad yet.
func newNaughty() *naughty {
	return &naughty{store: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
}

// layered is an image with one layer, in the given forms.
func layered(t *testing.T, name string, o ...tarball.LayerOption) v1.Layer {
	t.Helper()
	plain, err := ociimage.Build(small(name))
	if err != nil {
		t.Fatal(err)
	}
	layers, err := plain.Layers()
	if err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(layers[0].Uncompressed, o...)
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

// imageOf puts layers together for a machine.
func imageOf(t *testing.T, manifest, config types.MediaType, arch string, layers ...v1.Layer) v1.Image {
	t.Helper()
	im, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, manifest), config), layers...)
	if err != nil {
		t.Fatal(err)
	}
	file, err := im.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", arch
	if im, err = mutate.ConfigFile(im, file); err != nil {
		t.Fatal(err)
	}
	return im
}

// TestPullsFromRegistriesOfEveryKind pulls images of all forms, and from
// registries that are found, reached and trusted in different ways.
func TestPullsFromRegistriesOfEveryKind(t *testing.T) {
	trace.Proves(t, "IMG-013", "IMG-017")
	h := newHost(t)
	reg := newNaughty()
	plain, secure := httptest.NewServer(reg), httptest.NewTLSServer(reg)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	plain.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	t.Setenv("HTTP_PROXY", plain.URL) // it answers for any host
	t.Setenv("NO_PROXY", "")

	other := "arm64"
	if runtime.GOARCH == other {
		other = "s390x"
	}
	oci := imageOf(t, types.OCIManifestSchema1, types.OCIConfigJSON, runtime.GOARCH,
		layered(t, "gzip", tarball.WithMediaType(types.OCILayer)), layered(t, "zstd", tarball.WithMediaType(types.OCILayerZStd), tarball.WithCompression(compression.ZStd)))
	docker := imageOf(t, types.DockerManifestSchema2, types.DockerConfigJSON, runtime.GOARCH, layered(t, "docker", tarball.WithMediaType(types.DockerLayer)))
	foreign := imageOf(t, types.OCIManifestSchema1, types.OCIConfigJSON, other, layered(t, "foreign", tarball.WithMediaType(types.OCILayer)))
	push(t, plain.URL+"/v2/oci", "1", oci)
	push(t, plain.URL+"/v2/docker", "1", docker)
	cut := imageOf(t, types.OCIManifestSchema1, types.OCIConfigJSON, runtime.GOARCH, layered(t, "cut", tarball.WithMediaType(types.OCILayer)))
	push(t, plain.URL+"/v2/cut", "1", cut)
	index := func(name string, kind types.MediaType, images ...v1.Image) {
		t.Helper()
		list := mutate.IndexMediaType(empty.Index, kind)
		for _, im := range images {
			file, err := im.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			digest, err := im.Digest()
			if err != nil {
				t.Fatal(err)
			}
			push(t, plain.URL+"/v2/"+name, digest.String(), im)
			list = mutate.AppendManifests(list, mutate.IndexAddendum{Add: im, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: file.Architecture}}})
		}
		data, err := list.RawManifest()
		if err != nil {
			t.Fatal(err)
		}
		upload(t, http.MethodPut, plain.URL+"/v2/"+name+"/manifests/1", string(kind), data)
	}
	index("index", types.OCIImageIndex, foreign, oci)
	index("list", types.DockerManifestList, foreign, docker)
	index("foreign", types.OCIImageIndex, foreign)

	hosts := func(name, text string) {
		t.Helper()
		dir := h.o.RegistryConfigDir + "/" + name
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(dir+"/hosts.toml", []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	ca := h.dir + "/ca.crt"
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o644); err != nil {
		t.Fatal(err)
	}
	hosts("mirrored.example", "server = \"http://127.0.0.1:1\"\n[host.\"http://127.0.0.1:2\"]\n[host.\""+plain.URL+"\"]\n")
	hosts("insecure.example", "server = \""+secure.URL+"\"\nskip_verify = true\n")
	hosts("trusted.example", "server = \""+secure.URL+"\"\nca = \""+ca+"\"\n")
	hosts("untrusted.example", "server = \""+secure.URL+"\"\n")
	hosts("proxied.example", "server = \"http://proxied.example\"\n")
	h.start()
	images := h.images()
	id := func(im v1.Image) string {
		name, err := im.ConfigName()
		if err != nil {
			t.Fatal(err)
		}
		return name.String()
	}
	local := strings.TrimPrefix(plain.URL, "http://")
	digest, err := docker.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		local + "/oci:1": id(oci), local + "/docker:1": id(docker), local + "/docker@" + digest.String(): id(docker),
		local + "/index:1": id(oci), local + "/list:1": id(docker), local + "/cut:1": id(cut),
		"mirrored.example/oci:1": id(oci), "insecure.example/oci:1": id(oci), "trusted.example/oci:1": id(oci), "proxied.example/oci:1": id(oci),
	} {
		if got, err := images.Pull(t.Context(), name, nil); err != nil || got != want {
			t.Errorf("pull %s: got %s, %v; want %s", name, got, err, want)
		}
	}
	for name, want := range map[string]string{
		local + "/foreign:1":       "no match for platform in manifest",
		"untrusted.example/oci:1":  "certificate signed by unknown authority",
		"127.0.0.1:1/oci:1":        "connection refused",
		"nowhere.invalid/none:1:1": "invalid reference format",
	} {
		if got, err := images.Pull(t.Context(), name, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("pull %s: got %s, %v; want %s", name, got, err, want)
		}
	}
}

// TestSettingsOfRegistriesMayBeInSeveralDirectories pulls by mirrors that are named in
// the second and third directory, as by default, while the settings change.
func TestSettingsOfRegistriesMayBeInSeveralDirectories(t *testing.T) {
	h := newHost(t)
	srv := httptest.NewServer(newNaughty())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(srv.Close)
	im := imageOf(t, types.OCIManifestSchema1, types.OCIConfigJSON, runtime.GOARCH, layered(t, "one", tarball.WithMediaType(types.OCILayer)))
	push(t, srv.URL+"/v2/oci", "1", im)
	roots := []string{h.dir + "/none", h.dir + "/second", h.dir + "/third"}
	h.o.RegistryConfigDir = strings.Join(roots, ":")
	hosts := func(root int, name, server string) {
		t.Helper()
		dir := roots[root] + "/" + name
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(dir+"/hosts.toml", []byte("server = \""+server+"\"\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	hosts(1, "in-second.invalid", srv.URL)
	hosts(2, "in-second.invalid", "http://127.0.0.1:1")
	hosts(2, "in-third.invalid", srv.URL)
	h.start()
	images := h.images()
	pulls := func(name, want string) { // empty: it does
		t.Helper()
		if _, err := images.Pull(t.Context(), name, nil); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("pull %s: got %v, want %q", name, err, want)
		}
	}
	pulls("in-second.invalid/oci:1", "")
	pulls("in-third.invalid/oci:1", "")
	pulls("127.0.0.1:1/oci:1", "dial tcp 127.0.0.1:1: connect: connection refused") // it has no settings
	hosts(1, "127.0.0.1_1_", srv.URL)
	pulls("127.0.0.1:1/oci:1", "")
	hosts(0, "127.0.0.1_1_", "http://127.0.0.1:2")
	pulls("127.0.0.1:1/oci:1", "dial tcp 127.0.0.1:2: connect: connection refused")
	for _, root := range roots[:2] {
		if err := os.RemoveAll(root + "/127.0.0.1_1_"); err != nil {
			t.Fatal(err)
		}
	}
	pulls("127.0.0.1:1/oci:1", "dial tcp 127.0.0.1:1: connect: connection refused")
	hosts(2, "_default", srv.URL)
	pulls("127.0.0.1:1/oci:1", "")
}

// TestPullsFromABadRegistryFailClearly pulls from registries that refuse, fail
// or lie: the error says why, and nothing is kept.
func TestPullsFromABadRegistryFailClearly(t *testing.T) {
	h := newHost(t)
	srv := httptest.NewServer(newNaughty())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(srv.Close)
	im := imageOf(t, types.OCIManifestSchema1, types.OCIConfigJSON, runtime.GOARCH, layered(t, "one", tarball.WithMediaType(types.OCILayer)))
	push(t, srv.URL+"/v2/other", "1", im)
	push(t, srv.URL+"/v2/stop", "1", im)
	h.start()
	images, before := h.images(), h.stored()
	local := strings.TrimPrefix(srv.URL, "http://")
	for _, c := range []struct{ name, code, want string }{
		{"status-401/x:1", "Unknown", "401 Unauthorized"},
		{"status-403/x:1", "Unknown", "403 Forbidden"},
		{"status-404/x:1", "NotFound", local + "/status-404/x:1: not found"},
		{"status-429/x:1", "Unknown", "429 Too Many Requests"},
		{"status-500/x:1", "Unknown", "500 Internal Server Error"},
		{"status-503/x:1", "Unknown", "503 Service Unavailable"},
		{"other:1", "FailedPrecondition", "unexpected commit digest"},
		{"stop:1", "Unknown", "unexpected EOF"},
	} {
		_, err := images.Pull(t.Context(), local+"/"+c.name, &runtimeapi.AuthConfig{Username: "u", Password: "p"})
		if err == nil || !strings.Contains(err.Error(), c.want) || grpcCode(errors.Unwrap(err)) != c.code {
			t.Errorf("%s: got %v (%s), want %s (%s)", c.name, err, grpcCode(errors.Unwrap(err)), c.want, c.code)
		}
		if after := h.stored(); after != before { // collects what was downloaded, too
			t.Errorf("%s: blobs and snapshots: got %d, want %d as before", c.name, after, before)
		}
	}
}
