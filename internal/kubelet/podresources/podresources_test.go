package podresources

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestQuestionsThatComeTooFastAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answered := 0
		serve := limited()
		ask := func() error {
			_, err := serve(t.Context(), nil, nil, func(context.Context, any) (any, error) {
				answered++
				return nil, nil
			})
			return err
		}
		for i := range burst {
			if err := ask(); err != nil {
				t.Fatalf("question %d: got %v, want an answer", i, err)
			}
		}
		if err := ask(); status.Code(err) != codes.ResourceExhausted || status.Convert(err).Message() != "rejected by rate limit" {
			t.Errorf("one question more: got %v, want it refused", err)
		}
		time.Sleep(time.Second / questions)
		if err := ask(); err != nil {
			t.Errorf("a moment later: got %v, want an answer", err)
		}
		if err := ask(); err == nil {
			t.Error("and one beside it: got an answer, want it refused")
		}
		if want := burst + 1; answered != want {
			t.Errorf("%d questions were answered, want %d", answered, want)
		}
	})
}
