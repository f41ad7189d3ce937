package ociimage

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func example(t *testing.T) Image {
	t.Helper()
	source := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(source, []byte("#!"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Image{
		Names: []string{"kemudi.local/a:1", "kemudi.local/a:latest"},
		Files: []File{
			{Path: "/usr/bin/tool", Source: source, Mode: fs.ModeSetuid | 0o755},
			{Path: "/bin/tool", Link: "/usr/bin/tool"},
			{Path: "/etc/motd", Content: []byte("hi\n"), UID: 7, GID: 8},
			{Path: "/tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
			{Path: "/empty"},
		},
		Entrypoint: []string{"/bin/tool"}, Cmd: []string{"-v"}, Env: []string{"A=b"},
		User: "7:8", WorkDir: "/tmp", Ports: []string{"80/tcp"}, StopSignal: "SIGQUIT", Labels: map[string]string{"l": "m"},
	}
}

func TestLayerHoldsTheFilesInOrder(t *testing.T) {
	img, err := Build(example(t))
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("layers: got %d, %v; want 1", len(layers), err)
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "%c %04o %d:%d %s %q %s\n", h.Typeflag, h.Mode, h.Uid, h.Gid, h.Name, data, h.Linkname)
	}
	want := `5 0755 0:0 bin/ "" 
2 0777 0:0 bin/tool "" /usr/bin/tool
0 0644 0:0 empty "" 
5 0755 0:0 etc/ "" 
0 0644 7:8 etc/motd "hi\n" 
5 1777 0:0 tmp/ "" 
5 0755 0:0 usr/ "" 
5 0755 0:0 usr/bin/ "" 
0 4755 0:0 usr/bin/tool "#!" 
`
	if got.String() != want {
		t.Errorf("layer: got\n%swant\n%s", got.String(), want)
	}
}

func TestConfigurationIsWhatWasAskedFor(t *testing.T) {
	img, err := Build(example(t))
	if err != nil {
		t.Fatal(err)
	}
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"Cmd":["-v"],"Entrypoint":["/bin/tool"],"Env":["A=b"],"Labels":{"l":"m"},"User":"7:8","WorkingDir":"/tmp","ExposedPorts":{"80/tcp":{}},"StopSignal":"SIGQUIT"}`
	if string(data) != want {
		t.Errorf("configuration: got %s, want %s", data, want)
	}
}

func TestSameDescriptionSameBytes(t *testing.T) {
	im := example(t)
	var a, b bytes.Buffer
	if err := Write(&a, im); err != nil {
		t.Fatal(err)
	}
	if err := Write(&b, im); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("two archives of one image differ")
	}
}

func TestArchiveIsBothOCIAndDocker(t *testing.T) {
	second := Image{Names: []string{"kemudi.local/b:1"}, Files: []File{{Path: "/b"}}}
	var buf bytes.Buffer
	if err := Write(&buf, example(t), second); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "a.tar")
	if err := os.WriteFile(path, buf.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"kemudi.local/a:1", "kemudi.local/a:latest", "kemudi.local/b:1"} {
		tag, err := reference(n)
		if err != nil {
			t.Fatal(err)
		}
		img, err := tarball.ImageFromPath(path, &tag)
		if err != nil {
			t.Errorf("docker archive lacks %s: %v", n, err)
			continue
		}
		if err := validate.Image(img); err != nil {
			t.Errorf("%s from the docker archive is not valid: %v", n, err)
		}
	}
	files := map[string][]byte{}
	for tr := tar.NewReader(&buf); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(tr); err != nil {
			t.Fatal(err)
		}
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(files["index.json"], &index); err != nil || len(index.Manifests) != 3 {
		t.Fatalf("index: got %d images, %v; want 3", len(index.Manifests), err)
	}
	for _, m := range index.Manifests {
		if int64(len(files[blobPath(m.Digest)])) != m.Size {
			t.Errorf("manifest %s of %s is not in the archive", m.Digest, m.Annotations[imageName])
		}
	}
}

func TestWrongDescriptionsAreRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		im   Image
		want string
	}{
		{"no name", Image{}, "it has no name"},
		{"name without a tag", Image{Names: []string{"kemudi.local/a"}}, `image name "kemudi.local/a"`},
		{"relative path", Image{Names: []string{"kemudi.local/a:1"}, Files: []File{{Path: "a"}}}, `file path "a" is not an absolute path`},
		{"the root", Image{Names: []string{"kemudi.local/a:1"}, Files: []File{{Path: "/"}}}, "below /"},
		{"listed twice", Image{Names: []string{"kemudi.local/a:1"}, Files: []File{{Path: "/a"}, {Path: "/x/../a"}}}, "file /a is listed twice"},
		{"file below a file", Image{Names: []string{"kemudi.local/a:1"}, Files: []File{{Path: "/a"}, {Path: "/a/b"}}}, "which is not a folder"},
		{"missing source", Image{Names: []string{"kemudi.local/a:1"}, Files: []File{{Path: "/a", Source: "/does/not/exist"}}}, "add /a: open /does/not/exist"},
	} {
		if err := Write(io.Discard, c.im); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
	}
}
