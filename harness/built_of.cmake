# cmake -Dfiles=FILE;... -P built_of.cmake: writes built_of.h, a fingerprint of these files, into the current folder
set(all "")
foreach(file ${files})
  file(SHA256 ${file} one)
  string(APPEND all "${one} ")
endforeach()
string(SHA256 all "${all}")
file(WRITE built_of.h "#define LADDER_BUILT_OF \"${all}\"\n")
