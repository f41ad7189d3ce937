// Package eventratelimit is the plugin EventRateLimit: how many events are taken in a
// second from all, from a namespace, of a user, or about an object.
package eventratelimit
