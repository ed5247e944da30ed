// Package nodesettings turns what install-config.yaml says of the nodes into the objects that bring it there in the
// standalone flow, where no MCO renders templates.
//
//	installconfig.NodeSettings + pools -> one MachineConfig a pool, ImageDigestMirrorSet -> rendered with the user's
package nodesettings
