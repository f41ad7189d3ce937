package apiserver

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestWatchesLastAsLongAsTheServerIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(o *Options) { o.WatchTime = time.Minute })
		began := time.Now()
		f.must(200, "GET", mapsPath+"?watch=1&resourceVersion=0", "")
		if took := time.Since(began); took < time.Minute || took > 2*time.Minute {
			t.Errorf("with --min-request-timeout=60, a watch lasted %s; want between one minute and two", took)
		}
	})
}

func TestEventsAreKeptAsLongAsTheServerIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(o *Options) { o.Kept = 5 * time.Minute })
		const path = "/api/v1/namespaces/default/events"
		f.must(201, "POST", path, `{"metadata":{"name":"one"},"involvedObject":{"namespace":"default"}}`)
		time.Sleep(4 * time.Minute)
		f.must(200, "GET", path+"/one", "")
		time.Sleep(2 * time.Minute)
		f.must(404, "GET", path+"/one", "")
	})
}
