package volume

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/trace"
)

// sources holds what the volumes of a test are made of.
type sources struct {
	configMaps map[string]*v1.ConfigMap
	secrets    map[string]*v1.Secret
	bundles    []*certificatesv1.ClusterTrustBundle
	requests   []*certificatesv1.PodCertificateRequest // nil: it is gone
	warnings   []string
	tokens     int
	life       time.Duration
	broken     error
}

var errMissing = errors.New("not found")

func (s *sources) ConfigMap(_, name string) (*v1.ConfigMap, error) {
	if cm := s.configMaps[name]; cm != nil {
		return cm, nil
	}
	return nil, fmt.Errorf("configmap %q %w", name, errMissing)
}

func (s *sources) Secret(_, name string) (*v1.Secret, error) {
	if x := s.secrets[name]; x != nil {
		return x, nil
	}
	return nil, fmt.Errorf("secret %q %w", name, errMissing)
}

func (s *sources) TrustBundles(*v1.ClusterTrustBundleProjection) ([]*certificatesv1.ClusterTrustBundle, error) {
	if s.bundles == nil {
		return nil, fmt.Errorf("trust bundle %w", errMissing)
	}
	return s.bundles, nil
}

func (s *sources) RequestCertificate(_ context.Context, pod *v1.Pod, p *v1.PodCertificateProjection, stub []byte) (string, error) {
	if s.broken != nil {
		return "", s.broken
	}
	s.requests = append(s.requests, &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: fmt.Sprint(len(s.requests))},
		Spec:       certificatesv1.PodCertificateRequestSpec{SignerName: p.SignerName, StubPKCS10Request: stub},
	})
	return fmt.Sprint(len(s.requests) - 1), nil
}

func (s *sources) CertificateRequest(_ context.Context, _ *v1.Pod, name string) (*certificatesv1.PodCertificateRequest, error) {
	if n, err := strconv.Atoi(name); err == nil && s.requests[n] != nil {
		return s.requests[n], nil
	}
	return nil, fmt.Errorf("request %w", errMissing)
}

func (s *sources) TellOf(_ *v1.Pod, reason, message string) {
	s.warnings = append(s.warnings, reason+": "+message)
}

func (s *sources) IsMissing(err error) bool { return errors.Is(err, errMissing) }

func (s *sources) Token(context.Context, *v1.Pod, *v1.ServiceAccountTokenProjection) (Token, error) {
	if s.broken != nil {
		return Token{}, s.broken
	}
	s.tokens++
	return Token{Value: fmt.Sprint("token-", s.tokens), Issued: time.Now(), Expires: time.Now().Add(s.life)}, nil
}

func (s *sources) Field(pod *v1.Pod, path string) (string, error) {
	if path == "metadata.labels" {
		return fmt.Sprint(pod.Labels), nil
	}
	return pod.Name, nil
}

func (s *sources) ResourceField(*v1.Pod, *v1.ResourceFieldSelector) (string, error) { return "2", nil }

// newManager returns a manager whose mounts are taken away after the test.
func newManager(t *testing.T) *Manager {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("making volumes needs root")
	}
	root := t.TempDir()
	t.Cleanup(func() {
		if err := unmountBelow(root); err != nil {
			t.Error(err)
		}
	})
	m, err := NewManager(root, &cri.Node{Allocatable: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// podOf is a pod of which one container uses all volumes, unless the spec has its own.
func podOf(t *testing.T, spec string) *v1.Pod {
	t.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid-1"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &pod.Spec); err != nil {
		t.Fatal(err)
	}
	if len(pod.Spec.Containers) == 0 {
		pod.Spec.Containers = []v1.Container{{Name: "c"}}
	}
	if c := &pod.Spec.Containers[0]; len(c.VolumeMounts) == 0 {
		for _, v := range pod.Spec.Volumes {
			c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
		}
	}
	return pod
}

func prepare(t *testing.T, m *Manager, pod *v1.Pod, src *sources) time.Time {
	t.Helper()
	again, err := m.Prepare(t.Context(), pod, src)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// tree lists what a reader of a volume sees: "name mode content".
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	var walk func(dir, prefix string)
	walk = func(dir, prefix string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), "..") {
				continue
			}
			path := filepath.Join(dir, e.Name())
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.IsDir() {
				walk(path, prefix+e.Name()+"/")
				continue
			}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, fmt.Sprintf("%s%s %04o %s", prefix, e.Name(), info.Mode().Perm(), data))
		}
	}
	walk(dir, "")
	slices.Sort(out)
	return out
}

func wantTree(t *testing.T, dir string, want ...string) {
	t.Helper()
	if got := tree(t, dir); !slices.Equal(got, want) {
		t.Errorf("%s:\ngot  %q\nwant %q", dir, got, want)
	}
}

func TestWrittenVolumesFollowTheirSources(t *testing.T) {
	trace.Proves(t, "C-359", "C-362", "C-363", "C-364", "C-366")
	defer syscall.Umask(syscall.Umask(0o077))
	m := newManager(t)
	src := &sources{configMaps: map[string]*v1.ConfigMap{
		"a": {Data: map[string]string{"k1": "one", "k2": "two"}, BinaryData: map[string][]byte{"bin": {0, 255}}},
	}}
	pod := podOf(t, `
volumes:
- {name: plain, configMap: {name: a, defaultMode: 0400}}
- {name: mapped, configMap: {name: a, items: [{key: k1, path: sub/dir/x, mode: 0640}, {key: k2, path: why}]}}
- {name: maybe, configMap: {name: b, optional: true}}
`)
	path := func(i int) string { return m.Path(pod, &pod.Spec.Volumes[i]) }
	prepare(t, m, pod, src)
	trace.Proves(t, "CMV-001")
	wantTree(t, path(0), "bin 0400 \x00\xff", "k1 0400 one", "k2 0400 two")
	trace.Proves(t, "CMV-K01/mode")
	wantTree(t, path(1), "sub/dir/x 0640 one", "why 0644 two")
	wantTree(t, path(2))

	src.configMaps["a"] = &v1.ConfigMap{Data: map[string]string{"k1": "uno", "k2": "two"}}
	src.configMaps["b"] = &v1.ConfigMap{Data: map[string]string{"k": "here"}}
	prepare(t, m, pod, src)
	wantTree(t, path(0), "k1 0400 uno", "k2 0400 two")
	wantTree(t, path(1), "sub/dir/x 0640 uno", "why 0644 two")
	wantTree(t, path(2), "k 0644 here")

	before, err := os.Readlink(filepath.Join(path(0), dataLink))
	if err != nil {
		t.Fatal(err)
	}
	delete(src.configMaps, "b")
	prepare(t, m, pod, src)
	wantTree(t, path(2))
	if after, _ := os.Readlink(filepath.Join(path(0), dataLink)); after != before {
		t.Error("content that did not change was written again")
	}
	if states, _ := filepath.Glob(filepath.Join(path(0), "..2*")); len(states) != 1 {
		t.Errorf("states left: %v", states)
	}

	delete(src.configMaps, "a")
	_, err = m.Prepare(t.Context(), pod, src)
	trace.Proves(t, "CMV-K01/optional")
	if err == nil || !strings.Contains(err.Error(), `MountVolume.SetUp failed for volume "plain" : configmap "a" not found`) {
		t.Errorf("missing config map: got %v", err)
	}
}

func TestEmptyDirsInAnUnknownMediumAreNotMade(t *testing.T) {
	_, err := newManager(t).Prepare(t.Context(), podOf(t, `{volumes: [{name: odd, emptyDir: {medium: Somewhere}}]}`), &sources{})
	trace.Proves(t, "EMPTY-K01/kubelet")
	if err == nil || !strings.Contains(err.Error(), `unknown storage medium "Somewhere"`) {
		t.Errorf("got %v", err)
	}
}

func TestSecretsAndProjectionsStayInMemory(t *testing.T) {
	m := newManager(t)
	src := &sources{life: time.Hour, secrets: map[string]*v1.Secret{"s": {Data: map[string][]byte{"p": []byte("pw")}}},
		configMaps: map[string]*v1.ConfigMap{"ca": {Data: map[string]string{"ca.crt": "CA"}}}}
	pod := podOf(t, `
containers: [{name: a, securityContext: {runAsUser: 1000}}, {name: b, securityContext: {runAsUser: 1000}}]
volumes:
- {name: s, secret: {secretName: s}}
- name: api
  projected:
    sources:
    - serviceAccountToken: {path: token, expirationSeconds: 3607}
    - configMap: {name: ca, items: [{key: ca.crt, path: ca.crt}]}
    - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}, {path: cpu, resourceFieldRef: {resource: limits.cpu}}]}
`)
	again := prepare(t, m, pod, src)
	if left := time.Until(again); left < 47*time.Minute || left > 48*time.Minute {
		t.Errorf("token is refreshed in %s, want 48 minutes", left)
	}
	s, api := m.Path(pod, &pod.Spec.Volumes[0]), m.Path(pod, &pod.Spec.Volumes[1])
	wantTree(t, s, "p 0644 pw")
	wantTree(t, api, "ca.crt 0644 CA", "cpu 0644 2", "namespace 0644 web", "token 0600 token-1")
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(api, "token"), &st); err != nil || st.Uid != 1000 {
		t.Errorf("token: owner %d (%v), want 1000", st.Uid, err)
	}
	for _, dir := range []string{s, api} {
		mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(dir))
		if err != nil || len(mounts) != 1 || mounts[0].FSType != "tmpfs" {
			t.Fatalf("%s is not in memory (%v)", dir, err)
		}
		if got, want := slices.Contains(strings.Split(mounts[0].VFSOptions, ","), "noswap"), StaysInMemory(); got != want {
			t.Errorf("%s is kept from being swapped: got %v, want %v: %s", dir, got, want, mounts[0].VFSOptions)
		}
	}
	prepare(t, m, pod, src)
	if src.tokens != 1 {
		t.Errorf("tokens fetched: got %d, want 1", src.tokens)
	}
}

func TestTrustBundlesAreOneFileWithEachCertificateOnce(t *testing.T) {
	m := newManager(t)
	block := func(content string, headers map[string]string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: headers, Bytes: []byte(content)}))
	}
	bundle := func(text string) *certificatesv1.ClusterTrustBundle {
		return &certificatesv1.ClusterTrustBundle{Spec: certificatesv1.ClusterTrustBundleSpec{TrustBundle: text}}
	}
	one, two := block("one", nil), block("two", nil)
	src := &sources{bundles: []*certificatesv1.ClusterTrustBundle{bundle("# remark\n" + two + one), bundle(block("one", map[string]string{"From": "somewhere"}))}}
	const of = `{volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {name: x, path: ca/bundle.pem%s}}]}}]%s}`
	pod := podOf(t, fmt.Sprintf(of, "", ""))
	prepare(t, m, pod, src)
	wantTree(t, m.Path(pod, &pod.Spec.Volumes[0]), "ca/bundle.pem 0644 "+one+two)

	pod = podOf(t, fmt.Sprintf(of, ", optional: true", ", securityContext: {fsGroup: 2000}"))
	prepare(t, m, pod, &sources{})
	wantTree(t, m.Path(pod, &pod.Spec.Volumes[0]), "ca/bundle.pem 0640 ")

	pod = podOf(t, fmt.Sprintf(of, "", ""))
	if _, err := m.Prepare(t.Context(), pod, &sources{}); err == nil || !strings.Contains(err.Error(), `volume "v" : trust bundle not found`) {
		t.Errorf("missing bundle: got %v", err)
	}
}

func TestTokenIsForTheUserAndTheGroupOfThePodAlone(t *testing.T) {
	for name, c := range map[string]struct {
		spec     string
		mode     fs.FileMode
		uid, gid uint32
	}{
		"neither":                     {"containers: [{name: a}]", 0o644, 0, 0},
		"user":                        {"securityContext: {runAsUser: 1000}, containers: [{name: a}]", 0o600, 1000, 0},
		"group":                       {"securityContext: {fsGroup: 2000}, containers: [{name: a}]", 0o640, 0, 2000},
		"user and group":              {"securityContext: {runAsUser: 1000, fsGroup: 2000}, containers: [{name: a}]", 0o640, 1000, 2000},
		"user of all containers":      {"securityContext: {fsGroup: 2000}, containers: [{name: a, securityContext: {runAsUser: 1000}}], initContainers: [{name: i, securityContext: {runAsUser: 1000}}]", 0o640, 1000, 2000},
		"several users and the group": {"securityContext: {runAsUser: 1000, fsGroup: 2000}, containers: [{name: a}, {name: b, securityContext: {runAsUser: 1001}}]", 0o640, 0, 2000},
	} {
		m := newManager(t)
		pod := podOf(t, "{volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: token}}]}}], "+c.spec+"}")
		prepare(t, m, pod, &sources{life: time.Hour})
		info, err := os.Stat(filepath.Join(m.Path(pod, &pod.Spec.Volumes[0]), "token"))
		if err != nil {
			t.Fatal(err)
		}
		if st := info.Sys().(*syscall.Stat_t); info.Mode().Perm() != c.mode || st.Uid != c.uid || st.Gid != c.gid {
			t.Errorf("%s: got mode %v, owner %d:%d, want %v, %d:%d", name, info.Mode(), st.Uid, st.Gid, c.mode, c.uid, c.gid)
		}
	}
}

func TestTokenIsRefreshedInTimeAndKeptWhileTheAPIIsAway(t *testing.T) {
	m := newManager(t)
	src := &sources{life: time.Hour}
	pod := podOf(t, `{volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: token}}]}}]}`)
	prepare(t, m, pod, src)
	old := func(age time.Duration) { // as if the token had been issued then
		m.mu.Lock()
		defer m.mu.Unlock()
		for k, tok := range m.mu.tokens {
			tok.Issued, tok.Expires = time.Now().Add(-age), time.Now().Add(time.Hour-age)
			m.mu.tokens[k] = tok
		}
	}
	old(49 * time.Minute)
	src.broken = errors.New("away")
	prepare(t, m, pod, src)
	wantTree(t, m.Path(pod, &pod.Spec.Volumes[0]), "token 0644 token-1")
	src.broken = nil
	prepare(t, m, pod, src)
	wantTree(t, m.Path(pod, &pod.Spec.Volumes[0]), "token 0644 token-2")
	src.broken = errors.New("away")
	old(2 * time.Hour)
	again, err := m.Prepare(t.Context(), pod, src)
	if err != nil || time.Until(again) > time.Minute || time.Until(again) < time.Second {
		t.Errorf("while the API is away: got %v, again in %s", err, time.Until(again))
	}
	wantTree(t, m.Path(pod, &pod.Spec.Volumes[0]), "token 0644 token-2")
	src.broken = apierrors.NewNotFound(v1.Resource("serviceaccounts"), "default")
	if _, err := m.Prepare(t.Context(), pod, src); err == nil {
		t.Error("an expired token was kept without an error, although the API refuses another")
	}
}

// TestTokensOutliveTheAgentAndTheMachine prepares a pod's volumes without the API, by an agent
// that is new and on a machine that was started again.
func TestTokensOutliveTheAgentAndTheMachine(t *testing.T) {
	m := newManager(t)
	src := &sources{life: time.Hour}
	pod := podOf(t, `{volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: a/token}}]}}]}`)
	prepare(t, m, pod, src)
	m.mu.tokens = map[tokenKey]Token{}
	prepare(t, m, pod, src)
	dir := m.Path(pod, &pod.Spec.Volumes[0])
	wantTree(t, dir, "a/token 0644 token-2")

	m.mu.tokens = map[tokenKey]Token{}
	src.broken = errors.New("away")
	prepare(t, m, pod, src)
	wantTree(t, dir, "a/token 0644 token-2")

	m.mu.tokens = map[tokenKey]Token{}
	if err := syscall.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	prepare(t, m, pod, src)
	wantTree(t, dir, "a/token 0644 token-1")
	if info, err := os.Stat(filepath.Join(m.PodDir(pod.UID), "tokens")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("where tokens are kept: got %v, %v, want mode 0700", info, err)
	}

	m.mu.tokens = map[tokenKey]Token{}
	src.broken = apierrors.NewForbidden(v1.Resource("serviceaccounts"), "default", errors.New("no"))
	if _, err := m.Prepare(t.Context(), pod, src); err == nil {
		t.Error("a token was kept although the API refuses one")
	}
	if err := m.CleanUp(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	src.broken = errors.New("away")
	if _, err := m.Prepare(t.Context(), pod, src); err == nil {
		t.Error("a token is left of a pod that was cleaned up")
	}
}

func TestGroupOfThePodOwnsItsVolumes(t *testing.T) {
	m := newManager(t)
	src := &sources{secrets: map[string]*v1.Secret{"s": {Data: map[string][]byte{"p": []byte("pw")}}}}
	pod := podOf(t, `
securityContext: {fsGroup: 1234}
volumes:
- {name: s, secret: {secretName: s, defaultMode: 0400}}
- {name: e, emptyDir: {}}
- {name: m, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
`)
	prepare(t, m, pod, src)
	s := m.Path(pod, &pod.Spec.Volumes[0])
	wantTree(t, s, "p 0440 pw")
	for _, path := range []string{filepath.Join(s, "p"), m.Path(pod, &pod.Spec.Volumes[1]), m.Path(pod, &pod.Spec.Volumes[2])} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if gid := info.Sys().(*syscall.Stat_t).Gid; gid != 1234 {
			t.Errorf("%s: group %d, want 1234", path, gid)
		}
		if info.IsDir() && (info.Mode().Perm() != 0o777 || info.Mode()&fs.ModeSetgid == 0) {
			t.Errorf("%s: mode %v, want all rights and setgid", path, info.Mode())
		}
	}
	var size syscall.Statfs_t
	if err := syscall.Statfs(m.Path(pod, &pod.Spec.Volumes[2]), &size); err != nil || int64(size.Blocks)*size.Bsize != 1<<20 {
		t.Errorf("size of the volume in memory: got %d (%v), want 1 MiB", int64(size.Blocks)*size.Bsize, err)
	}
	// What a pod does to its directory outlives a restart of the agent.
	if err := os.Chmod(m.Path(pod, &pod.Spec.Volumes[1]), 0o700); err != nil {
		t.Fatal(err)
	}
	prepare(t, m, pod, src)
	if info, _ := os.Stat(m.Path(pod, &pod.Spec.Volumes[1])); info.Mode().Perm() != 0o700 {
		t.Errorf("mode set by the pod: got %v, want it kept", info.Mode())
	}
}

func TestHostPathsAreWhatTheirTypeSays(t *testing.T) {
	m := newManager(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cases := []struct{ path, kind, want string }{
		{dir, "", ""},
		{dir, "Directory", ""},
		{file, "Directory", "is not a directory"},
		{file, "File", ""},
		{dir, "File", "is not a file"},
		{dir + "/none", "Directory", "is not a directory"},
		{dir + "/none", "", ""},
		{dir + "/new/dir", "DirectoryOrCreate", ""},
		{dir + "/new/file", "FileOrCreate", ""},
		{dir + "/far/file", "FileOrCreate", "no such file or directory"}, // its directory must be there
		{"/dev/null", "CharDevice", ""},
		{file, "Socket", "is not a socket file"},
		{"/dev/null", "BlockDevice", "is not a block device"},
	}
	for _, tc := range cases {
		pod := podOf(t, fmt.Sprintf(`{volumes: [{name: h, hostPath: {path: %q, type: %q}}]}`, tc.path, tc.kind))
		_, err := m.Prepare(t.Context(), pod, &sources{})
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.HasSuffix(err.Error(), tc.want) || strings.HasPrefix(tc.want, "is not") && !strings.Contains(err.Error(), "hostPath type check failed: "+tc.path+" ")) {
			t.Errorf("%s %q: got %v, want %q", tc.path, tc.kind, err, tc.want)
		}
	}
	if info, err := os.Stat(dir + "/new/dir"); err != nil || !info.IsDir() {
		t.Errorf("directory was not made: %v", err)
	}
}

func TestSubPathNeverLeavesItsVolume(t *testing.T) {
	trace.Proves(t, "C-334", "C-335")
	m := newManager(t)
	pod := podOf(t, `{volumes: [{name: e, emptyDir: {}}]}`)
	prepare(t, m, pod, &sources{})
	v := &pod.Spec.Volumes[0]
	vol := m.Path(pod, v)
	outside := t.TempDir()
	for link, target := range map[string]string{"escape": outside, "up": "../../../..", "inner": "real"} {
		if err := os.Symlink(target, filepath.Join(vol, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(vol, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(vol, "real", "f"), []byte("hi"), 0o644); err != nil {
		t.Fatal(err)
	}
	const refused = `failed to prepare subPath for volumeMount "e" of container "c"`
	for part, want := range map[string]string{
		"/abs": "must not be an absolute path", "a/../../b": "must not contain '..'", "escape": refused, "escape/new": refused, "up/x": refused,
		"real/f/new": refused,
	} {
		got, err := m.SubPath(pod, Part{v, "c", 0, part})
		if err == nil || !strings.HasSuffix(err.Error(), want) { // which tells nothing of what is there
			t.Errorf("%s: got %q, %v, want an error with %q", part, got, err, want)
		}
	}
	fixed := &v1.Volume{Name: "fixed", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/proc/self"}}} // where nobody makes anything
	if got, err := m.SubPath(pod, Part{fixed, "c", 0, "new"}); fmt.Sprint(err) != `failed to create subPath directory for volumeMount "fixed" of container "c"` {
		t.Errorf("got %q, %v", got, err)
	}
	for i, part := range []string{"inner/f", "new/deep/dir", "inner"} {
		path, err := m.SubPath(pod, Part{v, "c", i, part})
		if err != nil {
			t.Fatalf("%s: %v", part, err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if info, err := os.Stat(filepath.Join(vol, "new/deep/dir")); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("new directory: %v %v, want the mode of the volume", info, err)
	}
	// A second start of the container mounts afresh.
	if _, err := m.SubPath(pod, Part{v, "c", 0, "real"}); err != nil {
		t.Error(err)
	}
	// What lies there is not opened: a socket cannot be. A link from the machine's root may lead to where one from here may.
	l, err := net.Listen("unix", filepath.Join(vol, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Symlink(filepath.Join(vol, "s"), filepath.Join(vol, "absolute")); err != nil {
		t.Fatal(err)
	}
	for i, part := range []string{"s", "absolute"} {
		path, err := m.SubPath(pod, Part{v, "s", i, part})
		if err != nil {
			t.Fatalf("%s: %v", part, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode()&fs.ModeSocket == 0 {
			t.Errorf("%s: got %v, %v, want the socket", part, info, err)
		}
	}
}

func TestVolumesThatNoContainerUsesAreNotMade(t *testing.T) {
	m := newManager(t)
	pod := podOf(t, `
containers: [{name: c, volumeMounts: [{name: used, mountPath: /u}]}]
volumes: [{name: used, emptyDir: {}}, {name: missing, secret: {secretName: nobody}}, {name: debug, emptyDir: {}}, {name: disk, hostPath: {path: /none, type: Directory}}]
`)
	prepare(t, m, pod, &sources{})
	there := func(i int) bool {
		_, err := os.Stat(m.Path(pod, &pod.Spec.Volumes[i]))
		return err == nil
	}
	if !there(0) || there(1) || there(2) {
		t.Errorf("made: %v, %v, %v, want the first", there(0), there(1), there(2))
	}
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "d", VolumeMounts: []v1.VolumeMount{{Name: "debug"}}}}}
	prepare(t, m, pod, &sources{})
	if !there(2) {
		t.Error("what a debugging container uses was not made")
	}
}

func TestFilesOfVolumesAreReadWithoutFollowingTheirMakers(t *testing.T) {
	trace.Proves(t, "KEP-3721")
	m, pod := newManager(t), &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	v := &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}
	dir := m.Path(pod, v)
	if err := errors.Join(
		os.MkdirAll(filepath.Join(dir, "d"), 0o755), os.WriteFile(filepath.Join(dir, "d/file"), []byte("A='x'"), 0o600),
		os.Symlink("d/file", filepath.Join(dir, "link")), os.Symlink("/etc/passwd", filepath.Join(dir, "away")),
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600), os.WriteFile(filepath.Join(dir, "large"), make([]byte, maxFile+1), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"d/file": "", "link": "", "away": "path escapes from parent", "d": "it is not a file", "pipe": "it is not a file",
		"gone": "no such file", "large": "more than",
	} {
		data, err := m.ReadFile(pod, v, path)
		if want == "" && (err != nil || string(data) != "A='x'") {
			t.Errorf("%s: got %q, %v", path, data, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %q, %v, want an error with %q", path, data, err, want)
		}
	}
}

func TestCleanUpLeavesNothingAndTouchesNothingElse(t *testing.T) {
	m := newManager(t)
	host := t.TempDir()
	if err := os.WriteFile(filepath.Join(host, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	src := &sources{secrets: map[string]*v1.Secret{"s": {Data: map[string][]byte{"p": []byte("pw")}}}}
	pod := podOf(t, fmt.Sprintf(`
volumes:
- {name: s, secret: {secretName: s}}
- {name: m, emptyDir: {medium: Memory}}
- {name: h, hostPath: {path: %q}}
`, host))
	prepare(t, m, pod, src)
	if _, err := m.SubPath(pod, Part{&pod.Spec.Volumes[2], "c", 0, "."}); err != nil {
		t.Fatal(err)
	}
	fresh, err := NewManager(m.root, m.node, m.log) // as after a kill -9
	if err != nil {
		t.Fatal(err)
	}
	uids, err := fresh.Pods()
	if err != nil || len(uids) != 1 || uids[0] != pod.UID {
		t.Fatalf("pods on disk: got %v, %v", uids, err)
	}
	for range 2 {
		if err := fresh.CleanUp(t.Context(), pod.UID); err != nil {
			t.Fatal(err)
		}
		uids, err := fresh.Pods()
		if err != nil || len(uids) != 1 {
			t.Fatalf("pods on disk while their logs may be there: got %v, %v", uids, err)
		}
	}
	for range 2 {
		if err := fresh.Forget(pod.UID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(m.PodDir(pod.UID)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("pod directory: got %v, want it gone", err)
	}
	if _, err := os.Stat(filepath.Join(host, "precious")); err != nil {
		t.Errorf("file on the host: %v", err)
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(m.root))
	if err != nil || len(mounts) != 0 {
		t.Errorf("mounts left: %v, %v", mounts, err)
	}
	for _, uid := range []string{"", "..", "a/b"} {
		if err := fresh.CleanUp(t.Context(), podOf(t, "{}").UID+"/.."); err == nil {
			t.Errorf("CleanUp(%q) took a path", uid)
		}
	}
}

func TestPathsOfFilesMustStayInTheVolume(t *testing.T) {
	w := &writer{files: map[string]file{}}
	for _, name := range []string{"", "/x", "../x", "a/../../x", "..data", "."} {
		if err := w.add(name, file{}); err == nil {
			t.Errorf("add(%q): got no error", name)
		}
	}
	if err := w.add("a/b", file{}); err != nil {
		t.Error(err)
	}
	if got := slices.Collect(maps.Keys(w.files)); len(got) != 1 {
		t.Errorf("files: %v", got)
	}
}

func TestVolumesInMemoryHaveTheSizeOfWhatTheirPodMayUse(t *testing.T) {
	m := &Manager{node: &cri.Node{Allocatable: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}}}
	for name, c := range map[string]struct {
		spec string
		want int64
	}{
		"nothing is limited":               {`containers: [{name: a}]`, 1 << 30},
		"the pod is":                       {`containers: [{name: a, resources: {limits: {memory: 64Mi}}}]`, 64 << 20},
		"all containers but one":           {`containers: [{name: a, resources: {limits: {memory: 64Mi}}}, {name: b}]`, 1 << 30},
		"all but one that runs before":     {`{initContainers: [{name: i}], containers: [{name: a, resources: {limits: {memory: 64Mi}}}]}`, 1 << 30},
		"the pod as a whole":               {`{resources: {limits: {memory: 96Mi}}, containers: [{name: a}]}`, 96 << 20},
		"the pod as a whole, but not that": {`{resources: {limits: {cpu: 1}}, containers: [{name: a, resources: {limits: {memory: 64Mi}}}, {name: b}]}`, 1 << 30},
		"more than there is":               {`containers: [{name: a, resources: {limits: {memory: 4Gi}}}]`, 1 << 30},
		"the volume itself, to less":       {`{volumes: [{name: v, emptyDir: {sizeLimit: 32Mi}}], containers: [{name: a, resources: {limits: {memory: 64Mi}}}]}`, 32 << 20},
		"the volume itself, to more":       {`{volumes: [{name: v, emptyDir: {sizeLimit: 2Gi}}], containers: [{name: a}]}`, 1 << 30},
	} {
		pod, e := podOf(t, c.spec), &v1.EmptyDirVolumeSource{}
		for i := range pod.Spec.Volumes {
			e = pod.Spec.Volumes[i].EmptyDir
		}
		if got := m.memorySize(pod, e); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

func TestVolumesOfHugePagesHaveThoseThatTheirPodAsksFor(t *testing.T) {
	for spec, want := range map[string]string{
		`containers: [{name: a, resources: {requests: {hugepages-2Mi: 4Mi}}}]`:                                                         "2Mi",
		`{resources: {requests: {hugepages-1Gi: 1Gi}}, containers: [{name: a}]}`:                                                       "1Gi",
		`{initContainers: [{name: i, resources: {requests: {hugepages-2Mi: 4Mi}}}], containers: [{name: a}]}`:                          "2Mi",
		`containers: [{name: a, resources: {requests: {hugepages-2Mi: 4Mi}}}, {name: b, resources: {requests: {hugepages-1Gi: 1Gi}}}]`: "",
		`containers: [{name: a}]`: "",
	} {
		if got := hugePageSize(podOf(t, spec)); got != want {
			t.Errorf("%s: got %q, want %q", spec, got, want)
		}
	}
}
