package volume

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Token is a service account token with its life time.
type Token struct {
	Value           string
	Issued, Expires time.Time
	again           time.Time // when to try to fetch the next one, after that has failed
}

// due is when the next one should be there: well before the end, and once a day.
func (t Token) due() time.Time {
	at := t.Issued.Add(t.Expires.Sub(t.Issued) * 8 / 10)
	if day := t.Issued.Add(24 * time.Hour); day.Before(at) {
		return day
	}
	return at
}

// renew is when to fetch the next one.
func (t Token) renew() time.Time {
	if at := t.due(); !at.Before(t.again) {
		return at
	}
	return t.again
}

// fetchAgain is when to fetch a token again after that has failed.
const fetchAgain = time.Minute

// token returns a token for a projection: the one there is, unless it is time
// for the next. While the API cannot be asked the last one stays, good or not: it may be
// for others than the API, and the pod need not wait.
func (m *Manager) token(ctx context.Context, pod *v1.Pod, volume string, p *v1.ServiceAccountTokenProjection, src Sources) (Token, error) {
	key := tokenKey{pod.UID, volume, p.Path}
	m.mu.Lock()
	t, ok := m.mu.tokens[key]
	m.mu.Unlock()
	if ok && time.Now().Before(t.due()) {
		return t, nil
	}
	fresh, err := src.Token(ctx, pod, p)
	switch {
	case err == nil:
		if err := m.keepToken(key, fresh.Value); err != nil {
			m.log.Warn("after a reboot without the API the pod will wait for its token", "pod", pod.Namespace+"/"+pod.Name, "err", err)
		}
	case ok && (time.Now().Before(t.Expires) || unasked(err)):
		m.log.Warn("refresh service account token", "pod", pod.Namespace+"/"+pod.Name, "err", err)
		fresh = t
		fresh.again = time.Now().Add(fetchAgain)
	default:
		last, found := m.lastToken(key)
		if !found || !unasked(err) {
			return Token{}, fmt.Errorf("failed to fetch token: %w", err)
		}
		m.log.Warn("the API does not answer: the pod keeps its last service account token", "pod", pod.Namespace+"/"+pod.Name, "err", err)
		fresh = Token{Value: last, again: time.Now().Add(fetchAgain)}
	}
	m.mu.Lock()
	m.mu.tokens[key] = fresh
	m.mu.Unlock()
	return fresh, nil
}

// unasked reports whether an error leaves open what the API would answer.
func unasked(err error) bool {
	var s apierrors.APIStatus
	return !errors.As(err, &s) || s.Status().Code >= http.StatusInternalServerError || apierrors.IsUnauthorized(err) || apierrors.IsTooManyRequests(err)
}

// tokenFile is where a pod's first token of a projection is kept, for the time after a reboot:
// what volumes show of it is in memory.
func (m *Manager) tokenFile(k tokenKey) string {
	return filepath.Join(m.PodDir(k.pod), "tokens", k.volume+"~"+url.QueryEscape(k.path))
}

// keepToken keeps the first token of a projection. Later ones are not written: when they
// are needed, their time is over as well.
func (m *Manager) keepToken(k tokenKey, value string) error {
	file := m.tokenFile(k)
	if info, err := os.Stat(file); err == nil && info.Size() > 0 {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("keep a token: %w", err)
	}
	if err := os.WriteFile(file, []byte(value), 0o600); err != nil {
		return fmt.Errorf("keep a token: %w", err)
	}
	return nil
}

// lastToken is the last token of a projection that is there: that which the volume shows,
// or the one that was kept.
func (m *Manager) lastToken(k tokenKey) (string, bool) {
	of := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: k.pod}}
	volume := &v1.Volume{Name: k.volume, VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{}}}
	for _, file := range []string{filepath.Join(m.Path(of, volume), k.path), m.tokenFile(k)} {
		if text, err := os.ReadFile(file); err == nil && len(text) > 0 {
			return string(text), true
		}
	}
	return "", false
}
