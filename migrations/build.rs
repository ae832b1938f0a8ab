//! A migration added to the folder must reach the binary: the macro alone would not see it.

fn main() {
    println!("cargo:rerun-if-changed=sqlite");
}
