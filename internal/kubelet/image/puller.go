package image

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/distribution/reference"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	config "k8s.io/kubelet/config/v1beta1"

	"github.com/kemudi/kemudi/internal/kubelet/backoff"
)

// failureShown is how long a failed pull is shown as such before it is shown as
// waiting for the next one.
const failureShown = 3 * time.Second

// Puller makes images available. Its methods may be called concurrently.
type Puller struct {
	images  runtimeapi.ImageServiceClient
	node    NodeCredentials
	records *Records
	verify  Verification
	slots   chan struct{} // buffered: a token for each pull under way
	arrived chan struct{} // buffered: an image was pulled that the collector has not seen
	changes atomic.Int64
	metrics *metrics

	mu struct {
		sync.Mutex
		waits map[pullKey]*wait
		used  map[types.UID]map[string]bool // IDs of the images that a pod was given
	}
}

// NodeCredentials returns the credentials of the node itself for an image, and those that it is given for a pod with
// such an account.
type NodeCredentials func(ctx context.Context, image string, account *Account) *Keyring

// pullKey is what pulls are held back by.
type pullKey struct {
	pod   types.UID
	image string
}

// wait is how long the next pull of an image is held back, and why.
type wait struct {
	long  time.Duration
	until time.Time
	cause string
}

// NewPuller returns a puller that uses the node's own credentials, asked for with
// each pull, besides those of the pod. node may be nil. So may records: then every pod
// may use what is on the node.
func NewPuller(images runtimeapi.ImageServiceClient, c Config, records *Records, node NodeCredentials) *Puller {
	p := &Puller{
		images: images, node: node, records: records, verify: c.Verify,
		slots: make(chan struct{}, c.WithDefaults().MaxPulls), arrived: make(chan struct{}, 1),
	}
	p.mu.waits, p.mu.used = map[pullKey]*wait{}, map[types.UID]map[string]bool{}
	return p
}

// Request is what is wanted.
type Request struct {
	Pod     types.UID
	Image   string
	Policy  v1.PullPolicy
	Runtime string // handler; empty: the default one
	Sandbox *runtimeapi.PodSandboxConfig
	// Secrets returns the pod's own credentials; called only before a pull.
	Secrets func() *Keyring
	Account *Account // the pod's; nil: it has none
	// Event tells the user; kind as in events.
	Event func(kind, reason, message string)
}

// Result is an image that can be run, or why there is none.
type Result struct {
	Ref  string // what to give to the runtime; empty if there is none
	UID  *int64 // the user the image runs as
	User string

	Reason, Message string
	Retry           time.Time
}

// Changes is how many images have been pulled or removed so far.
func (p *Puller) Changes() int64 { return p.changes.Load() }

// Changed counts a change that somebody else has made.
func (p *Puller) Changed() { p.changes.Add(1) }

// use notes that a pod was given an image.
func (p *Puller) use(pod types.UID, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.used[pod] == nil {
		p.mu.used[pod] = map[string]bool{}
	}
	p.mu.used[pod][id] = true
}

// uses reports whether a pod was given the image that is not forgotten yet.
func (p *Puller) uses(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ids := range p.mu.used {
		if ids[id] {
			return true
		}
	}
	return false
}

// Forget drops what is remembered of a pod.
func (p *Puller) Forget(pod types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.used, pod)
	for k := range p.mu.waits {
		if k.pod == pod {
			delete(p.mu.waits, k)
		}
	}
}

// Ensure makes the image available by its policy. An error is of the context.
func (p *Puller) Ensure(ctx context.Context, r Request) (Result, error) {
	f := finding{present: "unknown", pull: "unknown"}
	got, err := p.ensure(ctx, r, &f)
	p.metrics.asked(r.Policy, f)
	if got.Ref != "" {
		p.use(r.Pod, got.Ref)
	}
	if got.Reason != "" {
		r.Event(v1.EventTypeWarning, "Failed", "Error: "+got.Reason)
	}
	return got, err
}

// finding is, in words for metrics, whether an image is there and whether it must be pulled.
type finding struct{ present, pull string }

func (p *Puller) ensure(ctx context.Context, r Request, f *finding) (Result, error) {
	name, err := normalize(r.Image)
	if err != nil {
		message := fmt.Sprintf("Failed to apply default image tag %q: couldn't parse image name %q: %v", r.Image, r.Image, err)
		r.Event(v1.EventTypeWarning, "InspectFailed", message)
		return failed("InvalidImageName", message, backoff.Pull.Most), nil
	}
	spec := &runtimeapi.ImageSpec{Image: name, UserSpecifiedImage: r.Image, RuntimeHandler: r.Runtime}
	have, err := p.status(ctx, spec)
	if err != nil {
		if ctx.Err() != nil {
			return Result{}, context.Cause(ctx)
		}
		message := fmt.Sprintf("Failed to inspect image %q: %v", r.Image, err)
		r.Event(v1.EventTypeWarning, "InspectFailed", message)
		return failed("ImageInspectError", message, backoff.Pull.First), nil
	}
	usable := have != nil && r.Policy != v1.PullAlways && p.mayUse(ctx, r, name, have)
	if r.Policy != v1.PullAlways { // with which it does not matter
		f.present = strconv.FormatBool(have != nil)
	}
	if have != nil || r.Policy != v1.PullNever {
		f.pull = strconv.FormatBool(!usable)
	}
	if usable {
		r.Event(v1.EventTypeNormal, "Pulled", fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", r.Image))
		return found(have), nil
	}
	if r.Policy == v1.PullNever {
		message := fmt.Sprintf("Container image %q is not present with pull policy of Never", r.Image)
		r.Event(v1.EventTypeWarning, "ErrImageNeverPull", message)
		return failed("ErrImageNeverPull", message, backoff.Pull.First), nil
	}
	return p.pull(ctx, r, spec)
}

func failed(reason, message string, wait time.Duration) Result {
	return Result{Reason: reason, Message: message, Retry: time.Now().Add(wait)}
}

func found(im *runtimeapi.Image) Result {
	out := Result{Ref: im.Id, User: im.Username}
	if im.Uid != nil {
		uid := im.Uid.Value
		out.UID = &uid
	}
	return out
}

func (p *Puller) status(ctx context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	resp, err := p.images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: spec})
	if err != nil {
		return nil, err
	}
	return resp.Image, nil
}

// pull fetches the image unless it failed a short while ago.
func (p *Puller) pull(ctx context.Context, r Request, spec *runtimeapi.ImageSpec) (Result, error) {
	key := pullKey{r.Pod, spec.Image}
	if w, waits := p.waiting(key); waits {
		message := fmt.Sprintf("Back-off pulling image %q", r.Image)
		r.Event(v1.EventTypeNormal, "BackOff", message)
		return Result{Reason: "ImagePullBackOff", Message: message + ": " + w.cause, Retry: w.until}, nil
	}
	r.Event(v1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", r.Image))
	asked := time.Now()
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return Result{}, context.Cause(ctx)
	}
	start := time.Now()
	im, err := p.fetchNoted(ctx, r, spec)
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	if err != nil {
		reason, message := reasonOf(r.Image, err)
		r.Event(v1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: %v", r.Image, err))
		p.fail(key, reason+": "+message)
		return failed(reason, message, failureShown), nil
	}
	p.changes.Add(1)
	p.metrics.pulled(asked, im.Size)
	p.mu.Lock()
	delete(p.mu.waits, key)
	p.mu.Unlock()
	select {
	case p.arrived <- struct{}{}:
	default:
	}
	r.Event(v1.EventTypeNormal, "Pulled", fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
		r.Image, time.Since(start).Truncate(time.Millisecond), time.Since(asked).Truncate(time.Millisecond), im.Size))
	return found(im), nil
}

// reasonOf tells a registry that cannot be reached, and an image whose signature
// is bad, from other failures: by the code, or by the word that CRI has for it.
func reasonOf(image string, err error) (reason, message string) {
	const unavailable, invalid = "RegistryUnavailable", "SignatureValidationFailed"
	s := status.Convert(err)
	text, named := strings.CutPrefix(s.Message(), unavailable+": ")
	if named || s.Code() == codes.Unavailable {
		return unavailable, fmt.Sprintf("image pull failed for %s because the registry is unavailable: %s", image, text)
	}
	if text, named := strings.CutPrefix(s.Message(), invalid+": "); named {
		return invalid, fmt.Sprintf("image pull failed for %s because the signature validation failed: %s", image, text)
	}
	return "ErrImagePull", err.Error()
}

// fetchNoted is fetch, with a note of who has pulled the image.
func (p *Puller) fetchNoted(ctx context.Context, r Request, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	if err := p.records.begin(spec.Image); err != nil {
		return nil, err
	}
	im, used, err := p.fetch(ctx, r, spec)
	p.records.end(spec.Image, err == nil && p.records.add(spec.Image, im.Id, used) != nil)
	return im, err
}

// fetch pulls with each of the credentials that fit, or without any, and says which has worked.
func (p *Puller) fetch(ctx context.Context, r Request, spec *runtimeapi.ImageSpec) (im *runtimeapi.Image, used config.ImagePullCredentials, err error) {
	var all []Credential
	if r.Secrets != nil {
		all = r.Secrets().Lookup(spec.Image)
	}
	if p.node != nil {
		all = append(all, p.node(ctx, spec.Image, r.Account).Lookup(spec.Image)...)
	}
	if len(all) == 0 {
		all = []Credential{{}}
	}
	var errs []error
	for _, c := range all {
		resp, err := p.images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: spec, Auth: c.AuthConfig, SandboxConfig: r.Sandbox})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		im, err := p.status(ctx, &runtimeapi.ImageSpec{Image: resp.ImageRef, RuntimeHandler: r.Runtime})
		if err != nil {
			return nil, used, fmt.Errorf("inspect pulled image: %w", err)
		}
		if im == nil {
			return nil, used, fmt.Errorf("pulled image %s is not there", resp.ImageRef)
		}
		return im, c.used(), nil
	}
	if len(errs) == 1 {
		return nil, used, errs[0]
	}
	return nil, used, errors.Join(errs...)
}

func (p *Puller) waiting(key pullKey) (wait, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.mu.waits[key]
	if w == nil {
		return wait{}, false
	}
	if time.Since(w.until) > 2*backoff.Pull.Most {
		delete(p.mu.waits, key)
		return wait{}, false
	}
	return *w, time.Now().Before(w.until)
}

func (p *Puller) fail(key pullKey, cause string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.mu.waits[key]
	if w == nil {
		w = &wait{}
		p.mu.waits[key] = w
	}
	w.long, w.cause = backoff.Pull.Next(w.long), cause
	w.until = time.Now().Add(w.long)
}

// normalize adds what an image name leaves out but for the registry, which is
// the runtime's to add: the tag latest.
func normalize(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", err
	}
	if reference.IsNameOnly(named) {
		return image + ":latest", nil
	}
	return image, nil
}
