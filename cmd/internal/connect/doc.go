// Package connect reaches a cluster's API server: as kubectl finds it, and with what to do when it refuses or is not
// there.
//
//	--kubeconfig, --context, --namespace -> Flags.Client -> client, configuration; error -> Hint -> what to do
package connect
