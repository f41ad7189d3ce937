package hook

import (
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/kemudi/kemudi/internal/task"
)

// Post sends a document to a webhook, as JSON, and reads its answer into out. It waits as long as
// ctx lets it, and asks again when the webhook says so. What the webhook refuses is a [apierrors.StatusError] with its code; other errors
// are those of the network, and say whom they are about.
func (c *Caller) Post(ctx context.Context, cfg Config, in, out any) error {
	doc, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("write the request: %w", err)
	}
	a, err := c.sendAgain(ctx, cfg, doc)
	if err != nil {
		return err
	}
	if err := a.refusal(); err != nil {
		return err
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(a.body, out); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return nil
}

// tries is how often a webhook is asked that has too much to do and says when to come again.
const tries = 11

// sendAgain sends a document until the webhook takes it, or does not say when it may.
func (c *Caller) sendAgain(ctx context.Context, cfg Config, doc []byte) (answer, error) {
	for n := 1; ; n++ {
		a, err := c.send(ctx, cfg, doc)
		if err != nil {
			return a, err
		}
		wait, again := a.later()
		if !again || n == tries {
			return a, nil
		}
		if err := task.Sleep(ctx, wait); err != nil {
			return a, fmt.Errorf("%w - error from a previous attempt: %w", err, a.refusal())
		}
	}
}

// answer is what a webhook has answered.
type answer struct {
	code        int
	contentType string
	retryAfter  string
	body        []byte
}

// later is when a webhook that could not answer wants to be asked again.
func (a answer) later() (time.Duration, bool) {
	if a.code != http.StatusTooManyRequests && a.code < http.StatusInternalServerError {
		return 0, false
	}
	seconds, err := strconv.Atoi(a.retryAfter)
	return time.Duration(seconds) * time.Second, err == nil
}

// refusal is the error that an answer is: in the words of the webhook, if it has any.
func (a answer) refusal() error {
	if a.code >= http.StatusOK && a.code <= http.StatusPartialContent {
		return nil
	}
	var said metav1.Status
	if err := json.Unmarshal(a.body, &said); err == nil && said.Kind == "Status" && said.Status == metav1.StatusFailure {
		return &apierrors.StatusError{ErrStatus: said}
	}
	text := "unknown"
	if kind, _, err := mime.ParseMediaType(a.contentType); err == nil && strings.HasPrefix(kind, "text/") {
		const longest = 2048
		text = strings.TrimSpace(string(a.body[:min(len(a.body), longest)]))
	}
	return apierrors.NewGenericServerResponse(a.code, http.MethodPost, schema.GroupResource{}, "", text, 0, true)
}

// CheckKind refuses an answer of another kind than is wanted. One that does not say of which kind it
// is, or of which version, is what was asked for, as it is to upstream: webhooks often leave that out.
func CheckKind(got, want metav1.TypeMeta) error {
	if got.Kind != "" && got.Kind != want.Kind || got.APIVersion != "" && got.APIVersion != want.APIVersion {
		return fmt.Errorf("the webhook answered with %q %q, want %s %s", got.APIVersion, got.Kind, want.APIVersion, want.Kind)
	}
	return nil
}
