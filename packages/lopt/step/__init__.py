"""The same step by several means: plain PyTorch (`reference`), C++ (`cpu`); `dispatch` picks."""
