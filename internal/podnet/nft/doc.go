// Package nft writes nftables rules: it turns tables, chains, sets and rules
// given as data into one transaction, which the kernel takes as a whole or not
// at all.
//
// Beside them it reads and ends the connections that the kernel tracks for the rules.
//
// It knows the netlink wire format and nothing of what the rules are for. It is
// made for large transactions (a hundred thousand set elements): the encoder
// appends to one buffer, and only the last message asks for an answer.
// The nft program is not needed.
//
// Start at [Batch] and [Conn].
package nft
