// Package inquiry has servers ask each other how far the store's log is, by connections that are kept
// (decision 057): who asks sends a byte for each question, and gets a [etcd.Standing] for it, before it may send the next.
// What the answers are good for is the store's to know, and who may ask the API server's.
package inquiry
