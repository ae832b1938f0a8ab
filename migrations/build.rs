//! A migration added to a folder must reach the binary: the macro alone would not see it.

fn main() {
    println!("cargo:rerun-if-changed=sqlite");
    println!("cargo:rerun-if-changed=mysql");
}
