// Package nginx configures Debian's nginx for benchmarks, which have it pass requests on as an edge does.
package nginx
