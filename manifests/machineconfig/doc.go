// Package machineconfig parses Ignition configs of every accepted version, merges many of them in linear time and
// converts the result for older clients.
//
//	raw config (2.0-2.2, 3.0-3.5) -> Parse -> 3.5 configs -> Merger -> one config -> Encode, Contents, Down
package machineconfig
