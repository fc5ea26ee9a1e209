//! Names: everything that looks at or changes the tree.
