package apiserver

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestClientsShareObjectsByTheirUIDs(t *testing.T) {
	f := newFixture(t)
	const many = 24
	for i := range many {
		f.must(201, "POST", mapsPath, fmt.Sprintf(`{"metadata":{"name":"m-%02d"}}`, i))
	}
	seen := map[string]int{}
	for shard, selector := range []string{
		"shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')",
		"shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')",
	} {
		query := "?shardSelector=" + url.QueryEscape(selector)
		list := decoded[corev1.ConfigMapList](t, f.must(200, "GET", mapsPath+query, ""))
		if list.ShardInfo == nil || list.ShardInfo.Selector != selector {
			t.Errorf("shard %d says %+v of itself, want %s", shard, list.ShardInfo, selector)
		}
		for i := range list.Items {
			seen[list.Items[i].Name]++
		}
		var paged []string
		for token := ""; ; {
			page := decoded[corev1.ConfigMapList](t, f.must(200, "GET", mapsPath+query+"&limit=2&continue="+token, ""))
			for i := range page.Items {
				paged = append(paged, page.Items[i].Name)
			}
			if page.ShardInfo == nil || page.RemainingItemCount != nil {
				t.Errorf("a page says %+v", page.ListMeta)
			}
			if token = page.Continue; token == "" {
				break
			}
		}
		if len(paged) != len(list.Items) {
			t.Errorf("shard %d has %d objects in pages, and %d at once", shard, len(paged), len(list.Items))
		}
		events := f.must(200, "GET", mapsPath+query+"&watch=1&timeoutSeconds=1", "")
		if got := strings.Count(events, `"type":"ADDED"`); got != len(list.Items) {
			t.Errorf("a watch of shard %d begins with %d objects, want %d", shard, got, len(list.Items))
		}
	}
	if len(seen) != many {
		t.Errorf("both shards have %d objects, want %d, each in one: %v", len(seen), many, seen)
	}
	for name, n := range seen {
		if n != 1 {
			t.Errorf("%s is in %d shards", name, n)
		}
	}
	refuses(t, f, []bad{{"no shard", "GET", mapsPath + "?shardSelector=x", "", "", 400, "invalid shard selector: "}})
}
