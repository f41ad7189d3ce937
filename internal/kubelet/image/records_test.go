package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
	"github.com/kemudi/kemudi/test/metric"
)

// private is a node whose images are pulled by who knows the password of their registry.
type private struct {
	*fakecri.Runtime
	dir      string
	password string
	pulls    int
}

func (p *private) PullImage(ctx context.Context, in *runtimeapi.PullImageRequest, opts ...grpc.CallOption) (*runtimeapi.PullImageResponse, error) {
	p.pulls++
	if in.GetAuth().GetPassword() != p.password {
		return nil, errors.New("denied")
	}
	return p.Runtime.PullImage(ctx, in, opts...)
}

// ImageStatus knows the application by its ID as well, and by a name that others have given it.
func (p *private) ImageStatus(ctx context.Context, in *runtimeapi.ImageStatusRequest, opts ...grpc.CallOption) (*runtimeapi.ImageStatusResponse, error) {
	name := in.GetImage().GetImage()
	if name == bareID || name == "mirror.example/app:1" {
		name = "r.example/team/app:1"
	}
	resp, err := p.Runtime.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}}, opts...)
	if im := resp.GetImage(); im != nil && im.RepoTags[0] == "r.example/team/app:1" {
		im.RepoTags = append(im.RepoTags, "mirror.example/app:1")
	}
	return resp, err
}

const bareID = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// agent is a node agent that begins.
func (p *private) agent(v Verification) *Puller {
	return NewPuller(p, Config{Verify: v}, NewRecords(filepath.Join(p.dir, RecordsDir)), nil)
}

func secret(name, password string) *Keyring {
	k := &Keyring{}
	err := k.AddSecret(&v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(name)}, Type: v1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"auths": {"r.example": {"username": "u", "password": "` + password + `"}}}`)},
	})
	if err != nil {
		panic(err)
	}
	return k
}

// try is what becomes of a pod with a pull secret, which may be nil; pulls is how often the registry has been asked.
func (p *private) try(t *testing.T, agent *Puller, r Request) (reason string, pulls int) {
	t.Helper()
	before := p.pulls
	r.Pod, r.Event = types.UID(t.Name()), func(string, string, string) {}
	if r.Policy == "" {
		r.Policy = v1.PullIfNotPresent
	}
	got, err := agent.Ensure(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	agent.Forget(r.Pod) // the next try is another pod's
	return got.Reason, p.pulls - before
}

func TestAPodGetsAPresentImageOnlyIfItCouldPullIt(t *testing.T) {
	t.Parallel()
	p := &private{Runtime: fakecri.New(fakecri.Options{}), dir: t.TempDir(), password: "key"}
	const image = "r.example/team/app:1"
	agent := p.agent(Verification{})
	with := func(name, password string) func() *Keyring { return func() *Keyring { return secret(name, password) } }
	none := func() *Keyring { return &Keyring{} }
	for _, tc := range []struct {
		name   string
		r      Request
		before func()
		reason string
		pulls  int
	}{
		{"it is pulled", Request{Secrets: with("one", "key")}, nil, "", 1},
		{"again", Request{Secrets: with("one", "key")}, nil, "", 0},
		{"without secret", Request{Secrets: none}, nil, "ErrImagePull", 1},
		{"a wrong one", Request{Secrets: with("two", "guess")}, nil, "ErrImagePull", 1},
		{"never, without", Request{Secrets: none, Policy: v1.PullNever}, nil, "ErrImageNeverPull", 0},
		{"never, with it", Request{Secrets: with("one", "key"), Policy: v1.PullNever}, nil, "", 0},
		{"another with the same password", Request{Secrets: with("three", "key")}, nil, "", 0},
		{"which counts from now on, and whose password is another one now", Request{Secrets: with("three", "new")}, nil, "", 0},
		{"after a restart", Request{Secrets: with("one", "key")}, func() { agent = p.agent(Verification{}) }, "", 0},
		{"after a restart, without", Request{Secrets: none}, nil, "ErrImagePull", 1},
		{"by its ID, without", Request{Image: bareID, Secrets: none}, nil, "ErrImagePull", 1},
		{"for all pods of the node", Request{Secrets: none}, func() { p.password = "" }, "", 1},
		{"which all get from now on", Request{Secrets: none}, func() { p.password = "key" }, "", 0},
	} {
		if tc.before != nil {
			tc.before()
		}
		if tc.r.Image == "" {
			tc.r.Image = image
		}
		if reason, pulls := p.try(t, agent, tc.r); reason != tc.reason || pulls != tc.pulls {
			t.Errorf("%s: got %q after %d pulls, want %q after %d", tc.name, reason, pulls, tc.reason, tc.pulls)
		}
	}
}

func TestPoliciesSayOfWhichImagesPodsMustShowThat(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		policy                                   string
		allowed                                  []string
		preloaded, pulled, elsewhere, unfinished bool // whether a pod without secret gets it
	}{
		{"", nil, true, false, true, false},
		{"NeverVerifyPreloadedImages", nil, true, false, true, false},
		{"NeverVerify", nil, true, true, true, true},
		{"AlwaysVerify", nil, false, false, false, false},
		{"NeverVerifyAllowlistedImages", []string{"r.example/pre/*"}, true, false, false, false},
		{"NeverVerifyAllowlistedImages", []string{"r.example/team/app", "mirror.example/*"}, false, true, true, false},
	} {
		p := &private{Runtime: fakecri.New(fakecri.Options{}), dir: t.TempDir(), password: "key"}
		agent := p.agent(Verification{Policy: tc.policy, Allowed: tc.allowed})
		for _, image := range []string{"r.example/pre/loaded:1", "r.example/half:1"} {
			p.AddImage(image)
		}
		if err := agent.records.begin("r.example/half:1"); err != nil { // and the agent ends
			t.Fatal(err)
		}
		agent = p.agent(Verification{Policy: tc.policy, Allowed: tc.allowed})
		if reason, _ := p.try(t, agent, Request{Image: "r.example/team/app:1", Secrets: func() *Keyring { return secret("one", "key") }}); reason != "" {
			t.Fatalf("%s: pull: %s", tc.policy, reason)
		}
		for image, want := range map[string]bool{
			"r.example/pre/loaded:1": tc.preloaded, "r.example/team/app:1": tc.pulled, "mirror.example/app:1": tc.elsewhere, "r.example/half:1": tc.unfinished,
		} {
			if reason, _ := p.try(t, agent, Request{Image: image, Secrets: func() *Keyring { return &Keyring{} }}); (reason == "") != want {
				t.Errorf("%s %v: %s: got %q, want that it gets the image: %v", tc.policy, tc.allowed, image, reason, want)
			}
		}
	}
}

func TestRecordsOfImagesThatAreGoneAreDropped(t *testing.T) {
	t.Parallel()
	r := NewRecords(t.TempDir())
	open := Credential{}.used()
	for _, id := range []string{"sha256:kept", "sha256:gone"} {
		if err := r.add("r.example/"+id[7:], id, open); err != nil {
			t.Fatal(err)
		}
	}
	there := func(id string) bool { return id == "sha256:kept" }
	for _, late := range []struct {
		looked metav1.Time
		left   int
	}{{metav1.NewTime(metav1.Now().Add(-60e9)), 2}, {metav1.NewTime(metav1.Now().Add(60e9)), 1}} {
		if err := r.prune(there, late.looked.Time); err != nil {
			t.Fatal(err)
		}
		files, err := os.ReadDir(filepath.Join(r.dir, "pulled"))
		if err != nil || len(files) != late.left {
			t.Errorf("looked at %s: got %d records, %v, want %d", late.looked, len(files), err, late.left)
		}
	}
}

func TestBadPoliciesOfVerificationAreRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		v    Verification
		want string
	}{
		{Verification{Policy: "Sometimes"}, "--image-pull-credentials-verification-policy Sometimes: want NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages or AlwaysVerify"},
		{Verification{Allowed: []string{"r.example/x"}}, "--preloaded-images-verification-allowlist: has a meaning with --image-pull-credentials-verification-policy=NeverVerifyAllowlistedImages alone"},
		{Verification{"NeverVerifyAllowlistedImages", []string{"r.example/x:1"}}, `--preloaded-images-verification-allowlist: "r.example/x:1": want the whole name, without tag and digest: r.example/x`},
		{Verification{"NeverVerifyAllowlistedImages", []string{"r.example/*/x"}}, `--preloaded-images-verification-allowlist: "r.example/*/x": want the name of an image, or its beginning with /*`},
		{Verification{"NeverVerifyAllowlistedImages", []string{"/*"}}, `--preloaded-images-verification-allowlist: "/*": want the name of an image, or its beginning with /*`},
		{Verification{"NeverVerifyAllowlistedImages", []string{"r.example/*", "docker.io/library/busybox"}}, ""},
	} {
		got := ""
		if err := (Config{Verify: tc.v}).Check(); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%+v: got %q, want %q", tc.v, got, tc.want)
		}
	}
}

func TestWhatIsFoundOutAboutImagesIsCounted(t *testing.T) {
	t.Parallel()
	p, reg := &private{Runtime: fakecri.New(fakecri.Options{}), dir: t.TempDir(), password: "key"}, prometheus.NewRegistry()
	agent := p.agent(Verification{}).Measured(reg)
	const image, loaded = "r.example/team/app:1", "r.example/pre/loaded:1"
	p.AddImage(loaded)
	owner, stranger := func() *Keyring { return secret("one", "key") }, func() *Keyring { return &Keyring{} }
	for _, tc := range []struct {
		name                  string
		r                     Request
		policy, present, pull string
		found                 string // of an image that is there
	}{
		{"it is pulled", Request{Image: image, Secrets: owner}, "ifnotpresent", "false", "true", ""},
		{"it is there, and its pod has the secret", Request{Image: image, Secrets: owner}, "ifnotpresent", "true", "false", "credentialRecordFound"},
		{"it is there, and its pod has none", Request{Image: image, Secrets: stranger}, "ifnotpresent", "true", "true", "mustAuthenticate"},
		{"it was there before", Request{Image: loaded, Secrets: stranger, Policy: v1.PullNever}, "never", "true", "false", "credentialPolicyAllowed"},
		{"it is not there", Request{Image: "none", Secrets: stranger, Policy: v1.PullNever}, "never", "false", "unknown", ""},
		{"it does not matter whether it is there", Request{Image: image, Secrets: owner, Policy: v1.PullAlways}, "always", "unknown", "true", ""},
		{"it has no name", Request{Image: "A B", Secrets: owner}, "ifnotpresent", "unknown", "unknown", ""},
	} {
		p.try(t, agent, tc.r)
		if got := metric.Value(t, reg, "kubelet_image_manager_ensure_image_requests_total", "pull_policy="+tc.policy, "present_locally="+tc.present, "pull_required="+tc.pull); got != 1 {
			t.Errorf("%s: counted %v times, want once", tc.name, got)
		}
		if tc.found == "" {
			continue
		}
		if got := metric.Value(t, reg, "kubelet_imagemanager_image_mustpull_checks_total", "result="+tc.found); got != 1 {
			t.Errorf("%s: %s is counted %v times, want once", tc.name, tc.found, got)
		}
	}
	if pulled, under := metric.Value(t, reg, "kubelet_imagemanager_ondisk_pulledrecords"), metric.Value(t, reg, "kubelet_imagemanager_ondisk_pullintents"); pulled != 1 || under != 0 {
		t.Errorf("records: got %v of what was pulled and %v of what is being pulled, want 1 and 0", pulled, under)
	}
	files, err := filepath.Glob(filepath.Join(p.dir, RecordsDir, "pulled", "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("got %v, %v, want one record", files, err)
	}
	if err := os.WriteFile(files[0], []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.try(t, agent, Request{Image: image, Secrets: owner})
	if got := metric.Value(t, reg, "kubelet_imagemanager_image_mustpull_checks_total", "result=error"); got != 1 {
		t.Errorf("a record that cannot be read is counted %v times, want once", got)
	}
}

func TestSizesOfImagesHaveUpstreamsNames(t *testing.T) {
	t.Parallel()
	for size, want := range map[uint64]string{0: "N/A", 1: "0-10MB", 10 << 20: "0-10MB", 10<<20 + 1: "10MB-100MB", 1 << 30: "500MB-1GB", 1<<30 + 1: "1GB-5GB", 100 << 30: "60GB-100GB", 100<<30 + 1: "GT100GB"} {
		if got := sizeClass(size); got != want {
			t.Errorf("%d bytes: got %s, want %s", size, got, want)
		}
	}
}
