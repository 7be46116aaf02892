"""Random JSON values, with keys of bodies about users and ACLs."""

from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8")),
    lambda values: (
        st.lists(values, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["policies", "entries", "resource", "actions", "decision", "sourceIps", "policyType", "subject"]
            ),
            values,
            max_size=5,
        )
    ),
    max_leaves=20,
)
