package authn

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
)

// UsedTokens notes on secrets the day on which their token was used last, for
// whoever deletes those that nobody uses.
type UsedTokens struct {
	more chan struct{} // a token: there is something to note
	mu   struct {
		sync.Mutex
		due   map[types.UID]*corev1.Secret
		noted map[types.UID]string // days that the cache may not show yet
	}
}

// NewUsedTokens returns one that notes nothing until it runs.
func NewUsedTokens() *UsedTokens {
	u := &UsedTokens{more: make(chan struct{}, 1)} // a full one says enough
	u.mu.due, u.mu.noted = map[types.UID]*corev1.Secret{}, map[types.UID]string{}
	return u
}

// Day is a date as the labels of secrets have it.
func Day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// Used says that the token of a secret was used. It does not block.
func (u *UsedTokens) Used(s *corev1.Secret) {
	today := Day(time.Now())
	if s.Labels[core.LabelTokenLastUsed] == today {
		return
	}
	u.mu.Lock()
	known := u.mu.noted[s.UID] == today
	if !known {
		if len(u.mu.noted) >= maxKnown {
			clear(u.mu.noted)
		}
		u.mu.noted[s.UID], u.mu.due[s.UID] = today, s
	}
	u.mu.Unlock()
	if !known {
		select {
		case u.more <- struct{}{}:
		default:
		}
	}
}

// noteTimeout bounds one note. What cannot be noted is so at the next use tomorrow.
const noteTimeout = 30 * time.Second

// Run notes what is used until ctx ends. The transport may patch secrets.
func (u *UsedTokens) Run(ctx context.Context, t client.Transport, log *slog.Logger) error {
	secrets := client.For(t, core.Secrets)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-u.more:
		}
		u.mu.Lock()
		due := u.mu.due
		u.mu.due = map[types.UID]*corev1.Secret{}
		u.mu.Unlock()
		for uid, s := range due {
			data, err := json.Marshal(map[string]any{"metadata": metav1.ObjectMeta{UID: uid, Labels: map[string]string{core.LabelTokenLastUsed: Day(time.Now())}}})
			if err != nil {
				return err
			}
			err = bounded(ctx, func(ctx context.Context) error {
				_, err := secrets.Patch(ctx, s.Namespace, s.Name, "", client.Patch{Type: types.MergePatchType, Data: data})
				return err
			})
			if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				log.Warn("note the last use of a token", "secret", s.Namespace+"/"+s.Name, "err", err)
			}
		}
	}
}

func bounded(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	return f(ctx)
}
