package apiserver

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/apiserver/read"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// caches tells what the caches hold, what they were told and what lists have taken from them, when it is asked: nothing is counted for
// that where objects are read and written.
type caches struct{ s *Server }

var (
	_ prometheus.Collector = caches{}

	storageObjects  = prometheus.NewDesc("apiserver_storage_objects", "Objects that are stored, by resource.", []string{"resource"}, nil)
	resourceObjects = prometheus.NewDesc("apiserver_resource_objects", "Objects that are stored, by group and resource.", ofResource, nil)
	storageEvents   = prometheus.NewDesc("apiserver_storage_events_received_total", "Changes that the store has told of.", ofResource, nil)

	cacheReceived   = prometheus.NewDesc("apiserver_watch_cache_events_received_total", "Changes that caches were told of.", ofResource, nil)
	cacheDispatched = prometheus.NewDesc("apiserver_watch_cache_events_dispatched_total", "Changes that caches have in store for watches, whether there are any or not.", ofResource, nil)
	cacheLoads      = prometheus.NewDesc("apiserver_watch_cache_initializations_total", "How often caches were told the whole state.", ofResource, nil)
	cacheRevision   = prometheus.NewDesc("apiserver_watch_cache_resource_version", "The last 15 digits of the revision that caches show.", ofResource, nil)
	cacheRoom       = prometheus.NewDesc("watch_cache_capacity", "How many changes caches remember at most.", ofResource, nil)

	cacheLists         = prometheus.NewDesc("apiserver_cache_list_total", "Lists that were read from caches.", ofIndex, nil)
	cacheListsFetched  = prometheus.NewDesc("apiserver_cache_list_fetched_objects_total", "Objects that lists have looked at in caches.", ofIndex, nil)
	cacheListsReturned = prometheus.NewDesc("apiserver_cache_list_returned_objects_total", "Objects that lists have found in caches.", ofResource, nil)

	storageLists          = prometheus.NewDesc("apiserver_storage_list_total", "Lists, by where they were read from.", ofStorageIndex, nil)
	storageListsFetched   = prometheus.NewDesc("apiserver_storage_list_fetched_objects_total", "Objects that lists have looked at.", ofStorageIndex, nil)
	storageListsEvaluated = prometheus.NewDesc("apiserver_storage_list_evaluated_objects_total", "Objects that lists have held against what they were to have, once they were read from the store.", ofStorage, nil)
	storageListsReturned  = prometheus.NewDesc("apiserver_storage_list_returned_objects_total", "Objects that lists have found.", ofStorage, nil)

	ofResource     = []string{"group", "resource"}
	ofIndex        = []string{"group", "resource", "index"}
	ofStorage      = []string{"group", "resource", "storage"}
	ofStorageIndex = []string{"group", "resource", "storage", "index"}
)

// Describe names the metrics.
func (caches) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		storageObjects, resourceObjects, storageEvents, cacheReceived, cacheDispatched, cacheLoads, cacheRevision, cacheRoom, cacheLists, cacheListsFetched, cacheListsReturned,
		storageLists, storageListsFetched, storageListsEvaluated, storageListsReturned,
	} {
		ch <- d
	}
}

// Collect counts.
func (c caches) Collect(ch chan<- prometheus.Metric) {
	seen := map[*cache.Cache]bool{}
	for _, versions := range c.s.routes.Load().groups {
		for _, plurals := range versions {
			for _, v := range plurals {
				if v.Cache == nil || v.Version != nil && v.Version.Live == nil || seen[v.Cache] {
					continue
				}
				seen[v.Cache] = true
				tellCache(ch, v.Def, v.Cache)
			}
		}
	}
	c.tellLists(ch)
}

// shownDigits bounds a revision to the digits that a metric has room for.
const shownDigits = 1e15

func tellCache(ch chan<- prometheus.Metric, d *resource.Def, c *cache.Cache) {
	n := c.Counts()
	gauge := func(desc *prometheus.Desc, value float64) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, d.Group, d.Plural)
	}
	counter := func(desc *prometheus.Desc, value float64) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, value, d.Group, d.Plural)
	}
	ch <- prometheus.MustNewConstMetric(storageObjects, prometheus.GaugeValue, float64(n.Objects), d.GroupResource().String())
	gauge(resourceObjects, float64(n.Objects))
	gauge(cacheRevision, float64(c.Rev()%shownDigits))
	gauge(cacheRoom, float64(n.Room))
	counter(cacheLoads, float64(n.Loads))
	for _, desc := range []*prometheus.Desc{storageEvents, cacheReceived, cacheDispatched} { // a change is all of that at once
		counter(desc, float64(n.Changes))
	}
}

// tellLists tells of lists.
func (c caches) tellLists(ch chan<- prometheus.Metric) {
	type at struct{ group, plural, storage, index string }
	lists, objects := map[at]read.ListCounts{}, map[at]read.ListCounts{}
	c.s.reads.EachListed(func(l read.Listed, n read.ListCounts) {
		key := at{l.Group, l.Resource, "etcd", ""}
		if l.Cached {
			key.storage = "watchcache"
		}
		objects[key] = objects[key].Plus(n)
		if l.Index != "" {
			key.index = "f:" + l.Index
		}
		lists[key] = lists[key].Plus(n)
	})
	counter := func(desc *prometheus.Desc, value int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(value), labels...)
	}
	for k, n := range lists {
		counter(storageLists, n.Lists, k.group, k.plural, k.storage, k.index)
		counter(storageListsFetched, n.Fetched, k.group, k.plural, k.storage, k.index)
		if k.storage == "watchcache" {
			counter(cacheLists, n.Lists, k.group, k.plural, k.index)
			counter(cacheListsFetched, n.Fetched, k.group, k.plural, k.index)
		}
	}
	for k, n := range objects {
		counter(storageListsEvaluated, n.Evaluated, k.group, k.plural, k.storage)
		counter(storageListsReturned, n.Returned, k.group, k.plural, k.storage)
		if k.storage == "watchcache" {
			counter(cacheListsReturned, n.Returned, k.group, k.plural)
		}
	}
}
