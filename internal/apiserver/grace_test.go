package apiserver

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestGracePeriodsAreShortenedToWhatIsLeftOfThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		const pods = "/api/v1/namespaces/default/pods"
		for _, name := range []string{"a", "b", "c", "d"} {
			f.must(201, "POST", pods, `{"metadata":{"name":"`+name+`"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`)
			f.must(200, "DELETE", pods+"/"+name, `{"gracePeriodSeconds":30}`)
		}
		began := time.Now()
		time.Sleep(20 * time.Second)
		for _, q := range []struct {
			name        string
			asked       int64
			grace, ends int64 // in seconds from the beginning; 0: it is gone
		}{
			{"a", 25, 25, 25},
			{"b", 10, 1, 20},
			{"c", -1, 1, 20},
			{"d", 0, 0, 0},
		} {
			f.must(200, "DELETE", pods+"/"+q.name, fmt.Sprintf(`{"gracePeriodSeconds":%d}`, q.asked))
			w := f.ask("GET", pods+"/"+q.name, "")
			if q.ends == 0 {
				if w.Code != 404 {
					t.Errorf("%s: got %d %s, want it gone", q.name, w.Code, w.Body)
				}
				continue
			}
			got := decoded[corev1.Pod](t, w.Body.String())
			if got.DeletionTimestamp == nil || *got.DeletionGracePeriodSeconds != q.grace || int64(got.DeletionTimestamp.Sub(began).Round(time.Second)/time.Second) != q.ends {
				t.Errorf("%s: got %v, %v, want %d seconds, which end %d seconds after the beginning", q.name, got.DeletionTimestamp, got.DeletionGracePeriodSeconds, q.grace, q.ends)
			}
		}
		f.must(201, "POST", pods, `{"metadata":{"name":"e"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`)
		if got := f.must(200, "DELETE", pods+"/e", `{"gracePeriodSeconds":-5}`); !strings.Contains(got, `"deletionGracePeriodSeconds":1,`) {
			t.Errorf("less than nothing: got %s, want a second", got)
		}
	})
}
