package csi

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
)

// tokensKey is where a driver finds the tokens that it wants.
const tokensKey = "csi.storage.k8s.io/serviceAccount.tokens"

// token is one that a driver was given, and when the next is due.
type token struct {
	status authenticationv1.TokenRequestStatus
	due    time.Time
}

// tokenKey is what a token is for.
type tokenKey struct {
	pod      types.UID
	account  string
	audience string
	seconds  int64
}

// tokens are those of the pod's service account that the driver wants, by audience, as JSON; empty: it wants none.
func (s *Volumes) tokens(ctx context.Context, r *Request) (string, error) {
	if r.About == nil || len(r.About.Spec.TokenRequests) == 0 {
		return "", nil
	}
	got := map[string]authenticationv1.TokenRequestStatus{}
	for _, one := range r.About.Spec.TokenRequests {
		status, err := s.token(ctx, r, one)
		if err != nil {
			return "", fmt.Errorf("mounter.SetUpAt failed to get service account token attributes: %w", err)
		}
		got[one.Audience] = status
	}
	text, err := json.Marshal(got)
	if err != nil {
		return "", fmt.Errorf("write tokens for the driver: %w", err)
	}
	return string(text), nil
}

// token is a token for one audience: the last one, until most of its time is over.
func (s *Volumes) token(ctx context.Context, r *Request, one storagev1.TokenRequest) (authenticationv1.TokenRequestStatus, error) {
	key := tokenKey{pod: r.Pod.UID, account: r.Pod.Spec.ServiceAccountName, audience: one.Audience}
	if one.ExpirationSeconds != nil {
		key.seconds = *one.ExpirationSeconds
	}
	s.mu.Lock()
	t, ok := s.mu.tokens[key]
	s.mu.Unlock()
	if ok && time.Now().Before(t.due) {
		return t.status, nil
	}
	issued := time.Now()
	status, err := r.Sources.ServiceAccountToken(ctx, r.Pod, one)
	if err != nil {
		return status, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.tokens[key] = token{status, issued.Add(status.ExpirationTimestamp.Sub(issued) * 8 / 10)}
	return status, nil
}

// forgetTokensLocked forgets the tokens of a pod.
func (s *Volumes) forgetTokensLocked(uid types.UID) {
	for key := range s.mu.tokens {
		if key.pod == uid {
			delete(s.mu.tokens, key)
		}
	}
}
