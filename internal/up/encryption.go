package up

import (
	"context"
	"fmt"
	"net/http"

	"github.com/kemudi/kemudi/internal/encryption"
)

// EncryptionState is how the objects of a resource lie in the store.
type EncryptionState = encryption.State

// EncryptionStates say how all resources lie in the store that are encrypted, or may be.
func EncryptionStates(ctx context.Context, a Access) (states []EncryptionState, _ error) {
	err := a.ask(ctx, http.MethodGet, encryption.Path, nil, &states)
	if err != nil {
		return nil, explainEncryption(err)
	}
	return states, nil
}

func explainEncryption(err error) error {
	if err.Error() == notServed {
		return fmt.Errorf("the server encrypts nothing: it runs without --encryption-provider-config (%w)", err)
	}
	return err
}

// notServed is what the client says of a path that a server does not have.
const notServed = "the server could not find the requested resource"

// Rotation is what has become of the objects of a resource.
type Rotation struct {
	Resource  string               `json:"resource"`
	Looked    int                  `json:"looked"`    // at so many objects
	Rewritten int                  `json:"rewritten"` // so many of them lay there otherwise than they do now
	Failed    []encryption.Failure `json:"failed,omitempty"`
}

// roundsMost is how often a rotation begins again for objects that others wrote meanwhile.
const roundsMost = 3

// Rotate writes anew all objects that would be stored otherwise today. Whatever ends it, it can be begun again, and
// goes on with what is left. progress is told of each step: how many objects of a resource follow.
func Rotate(ctx context.Context, a Access, progress func(r *Rotation, left int64)) ([]*Rotation, error) {
	all := []*Rotation{}
	by := map[string]*Rotation{}
	for round := 1; ; round++ {
		states, err := EncryptionStates(ctx, a)
		if err != nil {
			return all, err
		}
		stale := 0
		for _, s := range states {
			r := by[s.Resource]
			if r == nil {
				r = &Rotation{Resource: s.Resource, Looked: s.Objects}
				all, by[s.Resource] = append(all, r), r
			}
			if s.Stale == 0 && s.Unreadable == 0 {
				continue
			}
			stale += s.Stale
			if round > roundsMost {
				continue
			}
			if err := a.rotate(ctx, r, progress); err != nil {
				return all, err
			}
		}
		switch {
		case stale == 0:
			return all, nil
		case round > roundsMost:
			return all, fmt.Errorf("%d objects lie in the store otherwise than they should: %w", stale, errStillStale)
		}
	}
}

var errStillStale = fmt.Errorf("see kemudi secrets status; does another server have another --encryption-provider-config?")

// rotate goes once through the objects of a resource.
func (a Access) rotate(ctx context.Context, r *Rotation, progress func(*Rotation, int64)) error {
	r.Looked, r.Failed = 0, nil
	for from := ""; ; {
		var step encryption.Step
		if err := a.ask(ctx, http.MethodPost, encryption.Path+"/"+r.Resource, map[string]string{"from": from}, &step); err != nil {
			return fmt.Errorf("rewrite %s: %w", r.Resource, err)
		}
		r.Looked += step.Looked
		r.Rewritten += step.Rewritten
		r.Failed = append(r.Failed, step.Failed...)
		progress(r, step.Left)
		if from = step.Next; from == "" {
			return nil
		}
	}
}
